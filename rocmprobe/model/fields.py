"""Types of fields whose values have limits. msgspec checks the limits whenever it reads an object."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

#: Type of a text that is short enough to be shown in full on pages and in messages.
Name = Annotated[str, Meta(max_length=1000)]
Count = Annotated[int, Meta(ge=0)]
