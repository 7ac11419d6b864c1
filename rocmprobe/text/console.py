"""A Rich console that escapes control sequences in text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from rocmprobe.text.plain_text import encodable, is_plain, plain


class Console(rich.console.Console):
    """A console for untrusted text.

    By default, text is not parsed as markup or emoji codes.
    """

    def __init__(self, **options: Any) -> None:
        # Turn off markup, because untrusted text can contain ``[link=...]``.
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
