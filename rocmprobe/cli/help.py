"""Help of a command, with its options in groups."""

from __future__ import annotations

import functools
from typing import Any

import click

#: Title of options without a group. Click's own option ``--help`` is one of them.
_OPTIONS = "Options"


class GroupedOption(click.Option):
    """An option that the help lists under the title ``group``."""

    def __init__(self, *names: Any, group: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists the options under group titles."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, options in grouped_options(self, ctx).items():
            records = [record for option in options if (record := option.get_help_record(ctx))]
            with formatter.section(title):
                formatter.write_dl(records)


def grouped_options(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """Return the visible options of ``command``, keyed by group title."""
    groups: dict[str, list[click.Option]] = {}
    for option in command.get_params(ctx):
        if isinstance(option, click.Option) and not option.hidden:
            groups.setdefault(getattr(option, "group", _OPTIONS), []).append(option)
    return groups


def option_group(title: str) -> Any:
    """Return a variant of ``click.option`` for options under the title ``title``."""
    return functools.partial(click.option, cls=GroupedOption, group=title)
