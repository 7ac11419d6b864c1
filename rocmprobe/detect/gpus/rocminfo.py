"""GPUs from rocminfo, which lists the agents (GPUs and CPUs) of the HSA runtime.

rocminfo is the source where KFD does not exist, as in WSL. Format: rocminfo.cc of ROCm 1.x to 7.x.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from rocmprobe.detect.stack import loader
from rocmprobe.detect.tree import Tree
from rocmprobe.model.results import Fact
from rocmprobe.process import children
from rocmprobe.text.plain_text import first_words, without_controls
from rocmprobe.text.versions import version_numbers

#: Timeout in seconds, because a broken driver can block rocminfo forever.
SECONDS = 5.0
#: Largest number of bytes stored per output stream. rocminfo prints about 6 kB per GPU.
_KEPT = 1 << 21
#: A user's name in rocminfo's message about groups. It is removed, because it is private.
_MEMBER = re.compile(r"(?<!\S)\S{1,200}(?= is (?:not )?(?:a )?member of )")
_MESSAGE_LINES, _LONGEST = 3, 300
_AGENT = re.compile(r"^Agent [0-9]+\s*$", re.MULTILINE)
_FIELD = re.compile(r"^[ \t]*([A-Za-z][A-Za-z0-9 .()/-]{0,60}?):+[ \t]*(.*)", re.MULTILINE)
_GFX = re.compile(r"gfx[0-9a-f]+")
_POOL = re.compile(r"Segment:\s*GLOBAL.*\n\s*Size:\s*([0-9]{1,18})(?:\(0x[0-9a-fA-F]+\))?\s*KB")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,15}|[0-9]{1,18}")


@dataclass(frozen=True)
class Agent:
    """A GPU of the HSA runtime.

    - ``gfx``: ISA that the runtime uses after any override
    - ``chip_id``: PCI device id, which no override changes
    - ``memory_bytes``: size of the largest memory pool
    - ``apu``: None if unknown (before ROCm 5.7)
    """

    gfx: Optional[str] = None
    name: Optional[str] = None
    chip_id: Optional[int] = None
    cus: Optional[int] = None
    wave_size: Optional[int] = None
    memory_bytes: Optional[int] = None
    apu: Optional[bool] = None


def read_agents(tree: Tree, environ: Mapping[str, str]) -> tuple[tuple[Agent, ...], dict[str, Fact]]:
    """Run rocminfo. Return the GPUs, and the facts ``rocminfo.gpus`` and ``rocminfo.message``.

    - ``rocminfo.gpus``: ISA of each GPU
    - ``rocminfo.message``: first lines of the output, if rocminfo lists no GPU
    """
    path = _find(tree, environ.get("PATH", os.defpath)) if tree.own else None
    if path is None:
        why = "not on PATH and not in /opt/rocm*/bin" if tree.own else "not run: --root"
        return (), {"rocminfo.gpus": Fact(None, f"rocminfo: {why}")}
    result = _run(path, environ)
    agents = parse(result.out)
    facts = {"rocminfo.gpus": Fact([agent.gfx or "unknown" for agent in agents], path)}
    if not agents:
        lines = "; ".join(_first_lines(f"{result.out}\n{result.err}"))
        facts["rocminfo.message"] = Fact(lines or result.failure or "no output", path)
    return agents, facts


def _run(path: str, environ: Mapping[str, str]) -> children.ProgramResult:
    # In a thread, because a signal must not interrupt the start of the program, and because even the start
    # can hang if the program's disk is on the network.
    ended: list[children.ProgramResult] = []
    thread = threading.Thread(
        target=lambda: ended.append(children.run((path,), environ, SECONDS, _KEPT)), daemon=True
    )
    thread.start()
    thread.join(SECONDS + 2 * children.KILLED_AFTER)
    return ended[0] if ended else children.ProgramResult(children.no_answer(SECONDS, dead=False))


def parse(text: str) -> tuple[Agent, ...]:
    """Return the GPUs in the output of rocminfo. Never raise an exception."""
    parts = _AGENT.split(without_controls(text.replace("\r\n", "\n")))
    return tuple(agent for part in parts[1:] if (agent := _agent(part)) is not None)


def _agent(text: str) -> Optional[Agent]:
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(text):
        # Pools, caches and ISAs come later and repeat labels such as "Name".
        fields.setdefault(name, value.strip())
    if fields.get("Device Type") != "GPU":
        return None
    gfx = _GFX.match(fields.get("Name", ""))
    properties = fields.get("Memory Properties")
    return Agent(
        gfx=gfx.group() if gfx else None,
        name=fields.get("Marketing Name") or None,
        chip_id=_number(fields.get("Chip ID")) or None,
        cus=_number(fields.get("Compute Unit")),
        wave_size=_number(fields.get("Wavefront Size")),
        memory_bytes=max((int(size) * 1024 for size in _POOL.findall(text)), default=None),
        apu=None if properties is None else "APU" in properties,
    )


def _number(text: Optional[str]) -> Optional[int]:
    match = _NUMBER.match(text or "")
    return int(match.group(), 16 if match.group()[:2] in ("0x", "0X") else 10) if match else None


def _first_lines(text: str) -> Iterator[str]:
    lines = _MEMBER.sub("<user>", without_controls(text)).splitlines()
    filled = (first_words(line.strip(), _LONGEST) for line in lines if line.strip())
    return (line for _, line in zip(range(_MESSAGE_LINES), filled))


def _find(tree: Tree, path: str) -> Optional[str]:
    """Search the folders in ``path`` (in the format of PATH), then /opt/rocm*/bin, for rocminfo."""
    if on_path := shutil.which("rocminfo", path=path):
        return on_path
    # Try /opt/rocm first, then the releases sorted by number, because 6.10 is newer than 6.9.
    releases = sorted(
        loader.rocm_folders(tree),
        key=lambda folder: (folder == f"{loader.OPT}/rocm", version_numbers(folder)),
        reverse=True,
    )
    places = (f"{folder}/bin/rocminfo" for folder in releases)
    return next((place for place in places if os.access(tree.locate(place), os.X_OK)), None)
