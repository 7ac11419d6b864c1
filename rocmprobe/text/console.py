"""Rich's console with untrusted text escaped, so that only Rich sends control sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from rocmprobe.text.plain_text import encodable, is_plain, plain


class Console(rich.console.Console):
    """A console for untrusted text. Only the program can set styles.

    By default, text is not parsed as markup or emoji codes, because a file's text can contain ``[link=...]``.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render(
        self, renderable: RenderableType, options: Optional[ConsoleOptions] = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
                continue
            text = segment.text if is_plain(segment.text) else plain(segment.text)
            yield Segment(encodable(text, self.encoding), segment.style)
