"""``rocmprobe install``: prints the commands that install PyTorch on a machine."""

from __future__ import annotations

import os
import platform
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Optional

import click

from rocmprobe import output
from rocmprobe.cli.base import exit_code_command
from rocmprobe.cli.explain import given_facts, read_facts
from rocmprobe.cli.github_job import no_commands
from rocmprobe.explain.facts import Facts, merge_and_derive
from rocmprobe.knowledge import installation
from rocmprobe.knowledge.gpus import NOT_FOUND, target
from rocmprobe.knowledge.installation import Place, Plan, as_data, plan
from rocmprobe.knowledge.options import STATUSES, Option, options
from rocmprobe.knowledge.stacks import distribution_of, stacks, system_of
from rocmprobe.model.exit_codes import FINDINGS, OK
from rocmprobe.model.results import BadInput, Machine, NothingToTest
from rocmprobe.text.printing import say, say_json

_WIDTH = 100
_OTHER_CARD = re.compile(
    r"\b(?:nvidia|geforce|gtx|rtx|gt ?\d{3,4}|quadro|tesla|titan|intel|arc [ab]\d{3}|u?hd graphics|iris)\b",
    re.IGNORECASE,
)
_NAME_IT = "name the card, as in --fact 'gpu=RX 5700 XT', or the target, as in --fact true_gfx=gfx1010"


@click.command("install")
@click.option("--stack", metavar="NAME", help="Only this stack, such as official-rocm5.2.")
@click.option(
    "--constraints",
    "constraints",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the constraints file of the first stack, or of --stack.",
)
@click.option("--force", is_flag=True, help="Replace a link, or a file that rocmprobe did not write.")
@click.option("--json", "as_json", is_flag=True, help="Stacks and commands as JSON (docs/installing.md).")
@click.option(
    "--facts",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another machine: what `rocmprobe detect --json` prints, or results.",
)
@click.option(
    "--fact",
    "given",
    multiple=True,
    metavar="NAME=VALUE",
    help="Another machine: a fact of it, such as gpu, true_gfx, os.",
)
@click.option("--simulate", metavar="MACHINE", help="A simulated machine (`rocmprobe list machines`).")
@exit_code_command
def install_command(
    stack: Optional[str],
    constraints: Optional[Path],
    force: bool,
    as_json: bool,
    facts: Optional[Path],
    given: tuple[str, ...],
    simulate: Optional[str],
) -> int:
    """Print the commands that install a PyTorch for this GPU.

    Runs none of them. The stacks are ranked by reports from owners of the same GPU, and by known limits
    (docs/installing.md). Exits 1 if no published torch is known to work, 3 if there is no AMD GPU.

    \b
    Examples:
      rocmprobe install
      rocmprobe install --fact 'gpu=RX 5700 XT' --fact os=Windows
      rocmprobe install --stack official-rocm5.2 --constraints constraints.txt
    """
    described = facts or given
    if simulate and described:
        raise BadInput("--simulate describes a whole machine; leave out --facts and --fact, or --simulate")
    machine_properties = place_of_facts(facts, given) if described else place_of(_machine(simulate))
    ranked = chosen(machine_properties, stack)
    works = any(option.status != "fails" for option in ranked)
    if constraints:
        if not works:
            raise BadInput(
                f"--constraints: no stack is known to work on {machine_properties.gfx}; leave this option out"
            )
        write_constraints(ranked[0], machine_properties, constraints, force)
    if as_json:
        say_json(data(machine_properties, ranked, constraints))
    else:
        with no_commands(os.environ):
            for line in lines(machine_properties, ranked, constraints, stack is not None):
                say(line)
    return OK if works else FINDINGS


def _machine(simulated: Optional[str]) -> Machine:
    if simulated is None:
        from rocmprobe.detect import detect

        return detect(Path("/"))
    from rocmprobe.simulate.machines import load_machine

    return load_machine(simulated).machine


def place_of_facts(path: Optional[Path], given: tuple[str, ...]) -> Place:
    """Return the machine that the options ``--facts`` and ``--fact`` describe.

    Raise BadInput if the file or a fact is invalid. Raise NothingToTest if the facts name no AMD chip.
    """
    recorded = read_facts(path) if path else None
    if isinstance(recorded, Machine) and not given:
        return place_of(recorded)
    facts = merge_and_derive(given_facts(path, given), Facts())
    if not facts.true_gfx:
        if _OTHER_CARD.search(facts.gpu or ""):
            raise NothingToTest(f"{facts.gpu!r:.80} is not an AMD card; {_NAME_IT}")
        raise NothingToTest(f"the facts name no chip; {_NAME_IT}")
    return Place(
        (facts.true_gfx,),
        facts.gpu or "",
        system_of(facts.os),
        distribution_of(facts.os),
        torch=facts.torch or "",
        variables=facts.env,
    )


def place_of(machine: Machine) -> Place:
    """Return the facts about ``machine`` that decide which stacks can be installed.

    Raise NothingToTest if the machine has no AMD GPU with a known chip.
    """
    place = installation.place_of(machine, platform.system())
    if place is None:
        why = "this chip is unknown" if machine.amd_gpus else f"no AMD GPU was found; {NOT_FOUND}"
        raise NothingToTest(f"{why}. For another machine, {_NAME_IT}")
    return place


def chosen(place: Place, stack: Optional[str]) -> tuple[Option, ...]:
    """Return the installation options for a machine, best first, or only the option for ``stack``.

    Raise BadInput if the stack is unknown or not available for this machine.
    """
    ranked = options(place.gfx, place.system, place.distribution, place.atomics)
    if stack is None:
        return ranked
    named = [row.name for row in stacks()]
    if stack not in named:
        raise BadInput(f"--stack: no stack {stack!r:.80}; there are {', '.join(named)}")
    wanted = tuple(option for option in ranked if option.stack.name == stack)
    if not wanted:
        here = ", ".join(option.stack.name for option in ranked) or "none"
        raise BadInput(f"--stack: {stack} is not for {_where(place)}; suitable stacks: {here}")
    return wanted


def write_constraints(option: Option, place: Place, file: Path, force: bool) -> None:
    """Write a pip constraints file for an installation option.

    Raise BadInput if the versions are unknown before the installation, or if the file cannot be written.
    """
    lines = plan(option, place).constraints
    if not lines:
        raise BadInput(
            f"--constraints: the versions of {option.stack.name} are not known before it is installed; use "
            "the command that `rocmprobe install` prints, or repeat this command afterwards in the new "
            "environment"
        )
    try:
        header = f"# rocmprobe install: constraints of {option.stack.name}"
        output.write(file, "".join(f"{line}\n" for line in (header, *lines)).encode(), force)
    except OSError as error:
        raise BadInput(f"--constraints: {file}: {error.strerror}; name another file") from error


def data(place: Place, ranked: Iterable[Option], file: Optional[Path]) -> dict[str, object]:
    """Return the installation options as JSON data (docs/installing.md)."""
    return {
        "gpu": place.gpu,
        "chips": list(place.chips),
        "system": place.system,
        "distribution": place.distribution,
        "stacks": [as_data(plan(option, place, _path(file))) for option in ranked],
    }


def lines(place: Place, ranked: tuple[Option, ...], file: Optional[Path], whole: bool) -> Iterator[str]:
    """Yield the installation options as lines of text, the commands of the best one first.

    If ``whole``, also yield the sources.
    """
    working = [option for option in ranked if option.status != "fails"]
    failing = [option for option in ranked if option.status == "fails"]
    yield f"{place.gpu or place.gfx} ({', '.join(place.chips)}), {_where(place)}"
    yield ""
    if target(place.gfx) is None:
        yield f"The chip {place.gfx} is unknown: `rocmprobe list gpus` does not list it."
    elif not working:
        yield "No published torch is known to work here."
    if working:
        yield from _best(plan(working[0], place, _path(file)), whole)
    if working[1:]:
        yield from ("", "Other stacks (`rocmprobe install --stack NAME` prints the commands and reports):")
        widest = max(len(option.stack.name) for option in working[1:])
        for option in working[1:]:
            yield f"  {option.stack.name.ljust(widest)}  {option.status_words}"
    if failing:
        yield ""
    # Stacks often fail for the same reason.
    for why, alike in groupby(failing, key=lambda option: option.reason):
        names = ", ".join(option.stack.name for option in alike)
        yield from _wrapped(f"Not {names}: {why or STATUSES['fails']}", "", "  ")
    yield ""
    yield "No command was run. rocmprobe has not tested these stacks: run `rocmprobe run` afterwards."


def _best(made: Plan, whole: bool) -> Iterator[str]:
    option = made.option
    yield from _wrapped(f"{option.stack.name}: {option.title}")
    yield from _wrapped(option.evidence, "  ")
    for what, commands in made.steps:
        yield ""
        yield f"# {what}"
        yield from commands
    known = (option.stack.text, option.lent.text if option.lent else "", *option.known_limits(sources=whole))
    yield ""
    for text in filter(None, known):
        yield from _wrapped(text, "- ", "  ")
    if not whole:
        return
    if made.constraints:
        yield ""
        yield "# Contents of the constraints file"
        yield from (f"#   {line}" for line in made.constraints)
    yield ""
    yield "Sources:"
    for source, date, checked in option.sources:
        dates = f"{date}, checked {checked}" if checked else date
        yield from _wrapped(f"{source} ({dates})", "  ", "    ")


def _wrapped(text: str, first: str = "", rest: Optional[str] = None) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _where(place: Place) -> str:
    names = {"linux": "Linux", "wsl": "WSL", "windows": "Windows"}
    name = names[place.system]
    return f"{name} ({place.distribution})" if place.distribution else name


def _path(file: Optional[Path]) -> Optional[str]:
    return str(file) if file else None
