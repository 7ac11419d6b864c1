"""Help of the command line, with commands and options in groups."""

from __future__ import annotations

import functools
from typing import Any

import click

#: Commands in groups, in the order in which a user needs them.
GROUPS = {
    "Start": ("install", "detect", "run"),
    "Use": ("exec", "env", "check"),
    "Understand": ("explain", "compare", "report", "repro"),
    "Advanced": ("shapes", "monitor", "list"),
}
_WIDEST = max(len(name) for names in GROUPS.values() for name in names)
#: Title of options without a group. Click's own option ``--help`` is one of them.
_OPTIONS = "Options"


def grouped_names(names: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the commands ``names``, keyed by group. Commands without a group are under "Other"."""
    groups = {title: [name for name in members if name in names] for title, members in GROUPS.items()}
    known = {name for members in GROUPS.values() for name in members}
    groups["Other"] = [name for name in names if name not in known]
    return {title: members for title, members in groups.items() if members}


class CommandGroup(click.Group):
    """A click group whose help lists commands under the titles in ``GROUPS``."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in grouped_names(tuple(self.list_commands(ctx))).items():
            with formatter.section(title):
                rows = []
                for name in names:
                    command = self.get_command(ctx, name)
                    if command is not None and not command.hidden:
                        rows.append((name.ljust(_WIDEST), command.get_short_help_str(formatter.width)))
                formatter.write_dl(rows)


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
