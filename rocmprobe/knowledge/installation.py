"""Commands that install a stack on a machine, and constraints that prevent pip from replacing torch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional, Union

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.options import Option
from rocmprobe.knowledge.stacks import code_loans, distribution_of, has_code, system_of
from rocmprobe.model.results import Machine

#: Packages that must come from the same build. Without constraints, pip could combine packages from different
#: indexes.
_TOGETHER = "torch|torchvision|torchaudio|triton|pytorch-triton-rocm|amd-torch[^=]*|rocm[^=]*"

#: Patterns that values from an untrusted file must match before they are used in a command.
_OVERRIDES = re.compile(rf"{OVERRIDE}(_[0-9]+)?")
_ROCM_TORCH = re.compile(r"[0-9][0-9A-Za-z.]*\+rocm[0-9A-Za-z.]+")


@dataclass(frozen=True)
class Place:
    """The machine on which a user wants to install a stack. Unknown fields are "" or None.

    - ``chips``: targets of the cards, the main card first
    - ``python``, ``torch``: installed versions
    - ``atomics``: True if the card can use PCIe atomics
    """

    chips: tuple[str, ...]
    gpu: str = ""
    system: str = "linux"
    distribution: Optional[str] = None
    python: str = ""
    torch: str = ""
    atomics: Optional[bool] = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def gfx(self) -> str:
        """Target of the main card."""
        return self.chips[0]


@dataclass(frozen=True)
class Plan:
    """Commands for installing a stack.

    ``constraints`` are the lines of pip's constraints file, or () if the versions are not yet known.
    """

    option: Option
    python: str
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    constraints: tuple[str, ...]


def place_of(machine: Machine, system: str = "") -> Optional[Place]:
    """Return the facts about ``machine`` that decide which stacks can be installed.

    ``system`` is the operating system if the facts do not name it. Return None if the machine has no AMD GPU
    with a known chip.
    """
    named = [gpu for gpu in machine.amd_gpus if gpu.native_isa.value]
    cards = sorted(named, key=lambda gpu: bool(gpu.apu.value))
    if not cards:
        return None
    first = cards[0]
    alike = [gpu for gpu in cards if bool(gpu.apu.value) == bool(first.apu.value)]
    name = machine.value("os.name") or (system if not machine.value("kernel.release") else "")
    return Place(
        tuple(dict.fromkeys(str(gpu.native_isa.value) for gpu in alike)),
        str(first.name.value or ""),
        system_of(name, machine.value("kernel.release")),
        distribution_of(machine.value("os.id") or name),
        str(machine.value("python.version") or ""),
        str(machine.value("torch.version") or ""),
        first.pcie_atomics.value,
        {variable: str(fact.value) for variable, fact in machine.variables.items()},
    )


def plan(option: Option, place: Place, constraints_file: Optional[str] = None) -> Plan:
    """Return the commands for installing ``option`` on the machine ``place``.

    ``constraints_file`` is the path of pip's constraints file if the file already exists.
    """
    stack = option.stack
    python = _python(stack.python, place.python)
    pins = constraints(option, place)
    shell = _PowerShell(stack.name) if place.system == "windows" else _Sh(stack.name)
    if stack.packages:
        install: tuple[str, ...] = (
            shell.environment(python),
            shell.activate(),
            _pip(option, place, shell),
        )
    else:
        install = tuple(line.format(gfx=option.runs_as) for line in stack.commands)
    steps = (
        ("Install", install),
        ("Set", tuple(_variables(option, place, shell))),
        ("Keep pip from replacing torch", tuple(_keep(option, pins, shell, constraints_file))),
        _check(place) if install else ("", ()),
    )
    return Plan(option, python, tuple(step for step in steps if step[1]), pins)


def _check(place: Place) -> tuple[str, tuple[str, ...]]:
    if place.system == "windows":
        return "Check", ("python -m torch.utils.collect_env",)
    return "Check (in rocmprobe's folder)", ("pip install .", "rocmprobe run")


def constraints(option: Option, place: Place) -> tuple[str, ...]:
    """Return the lines of pip's constraints file for a stack, or () if the versions are unknown."""
    stack = option.stack
    # Keep the local part of versions, such as "+rocm6.2". Otherwise pip could use another index.
    pins = [name for name in (package.replace("{extra}", "") for package in stack.packages) if "==" in name]
    if not pins and _ROCM_TORCH.fullmatch(place.torch):
        pins = [f"torch=={place.torch}"]
    others = [name for name in stack.packages if re.search(r"[<>]", name)]
    return (*pins, *others, *stack.constraints) if pins else ()


def as_data(made: Plan) -> dict[str, object]:
    """Return a plan as JSON data. docs/installing.md describes the keys."""
    option, stack = made.option, made.option.stack
    return {
        "stack": stack.name,
        "title": stack.title,
        "kind": stack.kind,
        "gfx": option.gfx,
        "runs_as": option.runs_as,
        "override": option.lent.override if option.lent else None,
        "rocm": stack.rocm,
        "torch": stack.torch,
        "python": made.python,
        "status": option.status,
        "evidence": option.evidence,
        "text": stack.text,
        "steps": [{"what": what, "commands": list(commands)} for what, commands in made.steps],
        "constraints": list(made.constraints),
        "limits": list(option.known_limits(sources=True)),
        "broken": [{"title": row.title, "text": row.text} for row in option.broken],
        "sources": [
            {"source": source, "date": date, "checked": checked} for source, date, checked in option.sources
        ],
    }


def _python(published: tuple[str, ...], there: str) -> str:
    minor = ".".join(there.split(".")[:2])
    return minor if minor in published else (published[0] if published else "")


def _pip(option: Option, place: Place, shell: _Shell) -> str:
    stack = option.stack
    others = (target.gfx for target in map(gpus.target, place.chips[1:]) if target)
    chips = dict.fromkeys((option.runs_as, *(chip for chip in others if has_code(stack, chip))))
    extra = f"[{','.join(f'device-{chip}' for chip in chips)}]"
    packages = " ".join(shell.quoted(package.replace("{extra}", extra)) for package in stack.packages)
    return f"pip install {packages} {stack.index_option} {stack.index}"


def _variables(option: Option, place: Place, shell: _Shell) -> Iterator[str]:
    if place.system != "windows":
        if option.lent:
            yield shell.export(OVERRIDE, option.lent.override)
        else:
            # Users whose chip can run with an override often set the override in their shell profile.
            usual = [OVERRIDE] if any(option.gfx in row.gfx for row in code_loans()) else []
            names = dict.fromkeys((*usual, *filter(_OVERRIDES.fullmatch, place.variables)))
            if names:
                yield f"unset {' '.join(names)}"
    if option.report:
        yield from (shell.export(name, value) for name, value in option.report.env.items())
    for row in option.limits:
        yield from (shell.export(name, value) for name, value in row.env.items())
        yield from (shell.cache(name) for name in row.caches)


def _keep(option: Option, pins: tuple[str, ...], shell: _Shell, written: Optional[str]) -> Iterator[str]:
    if not option.stack.packages:
        return
    file = written or shell.constraints
    if not written:
        yield shell.save(pins, file) if pins else shell.freeze(file)
    yield shell.constrain(file, written is not None)


class _Sh:
    """Commands for a POSIX shell."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Some shells do not expand ~ after an equals sign, so use $HOME.
        self.constraints = f'"$HOME/{name}/constraints.txt"'

    def environment(self, python: str) -> str:
        return f"python{python} -m venv ~/{self.name}"

    def activate(self) -> str:
        return f". ~/{self.name}/bin/activate"

    def quoted(self, requirement: str) -> str:
        return shlex.quote(requirement)

    def export(self, name: str, value: str) -> str:
        return f"export {name}={shlex.quote(value)}"

    def cache(self, name: str) -> str:
        return f'export {name}="$HOME/{self.name}/{name.lower()}"'

    def save(self, lines: tuple[str, ...], file: str) -> str:
        return rf"printf '%s\n' {' '.join(map(shlex.quote, lines))} > {file}"

    def freeze(self, file: str) -> str:
        return f"pip freeze | grep -E '^({_TOGETHER})==' > {file}"

    def constrain(self, file: str, given: bool) -> str:
        return f"export PIP_CONSTRAINT={shlex.quote(file) if given else file}"


class _PowerShell:
    def __init__(self, name: str) -> None:
        self.name = name
        self.constraints = f"$HOME\\{name}\\constraints.txt"

    def environment(self, python: str) -> str:
        return f'py -{python} -m venv "$HOME\\{self.name}"'

    def activate(self) -> str:
        return f'& "$HOME\\{self.name}\\Scripts\\Activate.ps1"'

    def quoted(self, requirement: str) -> str:
        return f'"{requirement}"'

    def export(self, name: str, value: str) -> str:
        return f'$env:{name} = "{value}"'

    def cache(self, name: str) -> str:
        return f'$env:{name} = "$HOME\\{self.name}\\{name.lower()}"'

    def save(self, lines: tuple[str, ...], file: str) -> str:
        return f'Set-Content "{file}" {", ".join(map(self.quoted, lines))}'

    def freeze(self, file: str) -> str:
        return f"pip freeze | Select-String '^({_TOGETHER})==' | ForEach-Object Line | Set-Content \"{file}\""

    def constrain(self, file: str, given: bool) -> str:
        return f'$env:PIP_CONSTRAINT = "{file}"'


_Shell = Union[_Sh, _PowerShell]
