"""Draw simulated machines with one fault each, and count how often a run finds the cure.

The fault's cure is a row of ``data/settings.toml``. The benchmark draws the rung, the cure, the effect, the
rate (always, 1 of 3, 1 of 20) and, for half of the faults in convolution, the size of the image up to which
everything works (17 to 200 pixels). The same seed draws the same machines::

    python benchmarks/cures.py draw machines
    for file in machines/*.toml; do python benchmarks/cures.py climb $file; done
    python benchmarks/cures.py count machines -o benchmarks/results/cures.md

"climb" is the beginning of a run: it climbs the ladder, and writes a report beside the machine's file. It
leaves out what a run does after its first answer. "count" also climbs the ladder of every machine with an
oracle in place of trials (see ``oracle.py``).

A recommendation is "same" if it has the effect of the drawn cure, "another" if the fault cannot happen under
it either, "none" if it is the CPU or no setting, and "wrong" if the fault can still happen.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from figures import heading, publish, table
from oracle import Recordings, oracle_run, recording

from rocmprobe.engine import run
from rocmprobe.engine.child import start_fork_server
from rocmprobe.engine.journal import End, RunJournal
from rocmprobe.engine.ladder import default_cases
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import setup_of
from rocmprobe.knowledge.environment import environment
from rocmprobe.knowledge.settings import Versions, reason_without_effect, with_cures
from rocmprobe.knowledge.solvers import solvers
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import problems
from rocmprobe.model.results import DIRECTIONS, Results, Setting
from rocmprobe.model.results_file import read_results
from rocmprobe.report.write import write_report
from rocmprobe.simulate.machines import Fault, SimulatedMachine, load_machine

OUTCOMES = ("same", "another", "none", "wrong")
RATES = {"always": 1.0, "1 of 3": 1 / 3, "1 of 20": 1 / 20}
#: Library and operators (regular expression) of a fault, keyed by rung.
PLACES = {
    "copy": ("hip", "^(_to_copy|copy_)$"),
    "kernel": ("hip", "^(?!_to_copy|copy_|clone|empty|detach|view|_unsafe_view|slice|select)"),
    "gemm": ("rocblas", "^(mm|addmm|bmm)$"),
    "conv": ("miopen", ""),
    "batch-norm": ("miopen", "batch_norm"),
    "rnn": ("miopen", "^(rnn_tanh|rnn_relu|lstm|gru)$"),
    "attention": ("hip", "^scaled_dot_product_attention"),
    "train": ("hip", "^(nll_loss|mse_loss|smooth_l1_loss|binary_cross_entropy)"),
}
#: Keyword of ``rocmprobe.bypass.install`` for the layer of a rung.
LAYERS = {"batch-norm": "batch_norm", "rnn": "rnn"}
EFFECTS = ("raise", "raise", "raise", "wrong", "wrong", "signal", "hang")
#: Values of the owner's variables that a cure unsets.
OWNER = {
    "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
    "PYTORCH_TUNABLEOP_ENABLED": "1",
    "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL": "1",
}
#: Cures that are never drawn: the drawn faults have one cause, and other cures of them are smaller.
LEFT_OUT = ("rocblas-only", "bypass", "cpu")
_FFT = "MIOPEN_DEBUG_CONV_FFT"
_LARGE = tuple(
    f"conv2d-fp32-n2-c16-i224x224-k32-f{size}x{size}-p{size // 2}{stride}"
    for size, stride in ((3, ""), (1, ""), (7, "-s2"))
)


@dataclass(frozen=True)
class Chip:
    """A card with a stack of PyTorch and ROCm."""

    name: str
    pci_id: str
    isa: str
    torch: str
    rocm: str
    miopen: str

    @property
    def versions(self) -> Versions:
        return Versions("MIOpen", self.miopen, self.torch, self.rocm)


CHIPS = (
    Chip("AMD Radeon RX 5600 XT", "0x731f", "gfx1010", "2.2.2+rocm5.7", "5.7.31921", "2.20.0"),
    Chip("AMD Radeon RX 6600 XT", "0x73ff", "gfx1032", "2.6.0+rocm6.2.4", "6.2.41134", "3.2.0"),
    Chip("AMD Radeon RX 7900 XTX", "0x744c", "gfx1100", "2.12.0+rocm7.2", "7.2.26015", "3.5.1"),
    Chip("AMD Radeon 780M Graphics", "0x15bf", "gfx1103", "2.9.1+rocm6.4", "6.4.43484", "3.4.0"),
    Chip("AMD Radeon Graphics", "0x1638", "gfx90c", "2.6.0+rocm6.2.4", "6.2.41134", "3.2.0"),
)


@dataclass(frozen=True)
class Draw:
    """A machine: its fault and the cure."""

    name: str
    rung: str
    cure: Setting
    chip: Chip
    effect: str
    rate: str
    largest: Optional[int]

    @property
    def text(self) -> str:
        """The machine's file."""
        size = f", above {self.largest} pixels" if self.largest else ""
        words = f"drawn: {self.rung} fails ({self.effect}, {self.rate}{size}), cured by {self.cure.name}"
        owner = {name: OWNER[name] for name in self.cure.unset if name in OWNER}
        return toml_rows(
            self.chip, words, "benchmarks/cures.py", self._fault(), owner, 2 if self.cure.one_device else 1
        )

    def _fault(self) -> dict[str, Any]:
        library, operator = PLACES[self.rung]
        fault: dict[str, Any] = {"library": library, "effect": self.effect, "chance": RATES[self.rate]}
        if self.effect == "raise":
            fault["message"] = f"a fault of the rung {self.rung}"
        if operator:
            fault["operator"] = operator
        if self.largest:
            fault["problem"] = f"-i{above(self.largest)}(x|-|$)"
        faulty = switched_off(self.cure)
        if faulty:
            fault["solver"] = faulty
        elif self.cure.one_device:
            fault["unless"] = dict.fromkeys(("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ".+")
        elif self.cure.env:
            fault["unless"] = {name: re.escape(value) for name, value in list(self.cure.env.items())[-1:]}
        elif self.cure.unset:
            fault["unless"] = {name: False for name in self.cure.unset if name in OWNER}
        fault["source"] = "drawn"
        return fault


def toml_rows(
    chip: Chip,
    summary: str,
    source: str,
    fault: Mapping[str, Any],
    owner: Mapping[str, str] = MappingProxyType({}),
    cards: int = 1,
) -> str:
    """Return the file of a machine with ``cards`` equal cards. ``owner`` has its variables."""
    gpu = {
        "name": chip.name, "vendor": "amd", "driver": "amdgpu", "pci_id": chip.pci_id,
        "native_isa": chip.isa,
        "effective_isa": "gfx1030" if "HSA_OVERRIDE_GFX_VERSION" in owner else chip.isa,
        "vram_bytes": 8 << 30,
    }  # fmt: skip
    facts = {
        "kfd.device": "present", "rocm.version": chip.rocm, "hip.version": chip.rocm,
        "miopen.version": chip.miopen, "torch.version": chip.torch, "torch.hip": chip.rocm,
        "torch.kind": "rocm",
    }  # fmt: skip
    rows = [f"summary = {_toml(summary)}", f"source = {_toml(source)}"]
    for header, row in (
        *[("[[gpus]]", gpu)] * cards,
        ("[facts]", facts),
        ("[variables]", owner),
        ("[[faults]]", fault),
    ):
        rows += _rows(header, row)
    return "\n".join((*rows, ""))


def above(number: int) -> str:
    """Return a regular expression for the whole numbers from ``number + 1`` to 9999."""
    digits = str(number)
    longer = [rf"[1-9]\d{{{length - 1}}}" for length in range(len(digits) + 1, 5)]
    same = [
        rf"{digits[:place]}[{int(digit) + 1}-9]\d{{{len(digits) - place - 1}}}"
        for place, digit in enumerate(digits)
        if digit != "9"
    ]
    return f"({'|'.join(same + longer)})"


def switched_off(setting: Setting) -> list[str]:
    """Return the names of the solvers that ``setting`` switches off. Leave out FFT."""
    return [
        each.name
        for each in solvers()
        if each.family != "FFT" and any(setting.env.get(name) == "0" for name in each.off)
    ]


def _rows(header: str, row: Mapping[str, Any]) -> list[str]:
    return ["", header, *(f"{_key(name)} = {_toml(value)}" for name, value in row.items())]


def _key(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value)


def draws(number: int, seed: int, folder: Path) -> Iterator[tuple[Draw, SimulatedMachine]]:
    """Draw ``number`` machines and write their files. Draw again if the cure does not work on the machine."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)  # noqa: S311
    drawn = 0
    while drawn < number:
        # Half of the faults are in convolution, which has the most cures.
        rung = "conv" if chance.random() < 0.5 else chance.choice(list(PLACES))
        chip = chance.choice(CHIPS)
        default, *others = with_cures("miopen", "default", chip.torch)
        rows = [each for each in others if _applies(each, rung, chip)]
        if not rows:
            continue
        cure = chance.choice(rows)
        largest = chance.randint(17, 200) if rung == "conv" and chance.random() < 0.5 else None
        rate = chance.choice(list(RATES))
        draw = Draw(f"drawn-{drawn + 1:02}", rung, cure, chip, chance.choice(EFFECTS), rate, largest)
        path = folder / f"{draw.name}.toml"
        path.write_text(draw.text, "utf-8")
        machine = load_machine(str(path))
        if can_fail(machine, default) and not can_fail(machine, cure):
            drawn += 1
            yield draw, machine


def _applies(row: Setting, rung: str, chip: Chip) -> bool:
    layer = LAYERS.get(rung)
    return (
        rung in row.cures
        and row.name not in LEFT_OUT
        and not row.torch.keys() - {"cudnn.benchmark", "cudnn.deterministic"}
        and (not row.isa or re.fullmatch(row.isa, chip.isa) is not None)
        and ("HSA_OVERRIDE_GFX_VERSION" not in row.unset or chip.isa == "gfx1100")
        and reason_without_effect(row, chip.versions) is None
        # A fault of a layer in MIOpen is cured by moving the layer. Other faults are cured by a variable.
        and bool(row.env or row.unset or row.one_device or layer in row.pytorch_layers)
        and (layer is None or layer in row.pytorch_layers)
    )


def can_fail(machine: SimulatedMachine, setting: Setting) -> bool:
    """Return True if the machine's fault can happen under ``setting``, or if a convolution has no solver."""
    environ = environment(setting, machine.environment({}))
    if setting.one_device:
        environ["HIP_VISIBLE_DEVICES"] = "0"
    in_miopen = setting.vendor_library and not setting.bypass
    texts = [*(each.text for each in problems("quick", "native") if each.dtype == "float32"), *_LARGE]
    calls = [(text, direction) for text in texts for direction in DIRECTIONS]
    tried = {call: machine.in_play(*call, "cuda:0", environ) for call in calls} if in_miopen else {}
    if any(not found for found in tried.values()):
        return True
    return any(_happens(fault, setting, environ, tried) for fault in machine.faults)


def _happens(
    fault: Fault,
    setting: Setting,
    environ: Mapping[str, str],
    tried: Mapping[tuple[str, str], tuple[str, ...]],
) -> bool:
    if fault.library == "miopen" and not fault.operator:
        return any(
            fault.matches(setting.name, text, "float32", direction, environ)
            and (not fault.solver or bool(set(fault.solver) & set(found)))
            for (text, direction), found in tried.items()
        )
    if fault.library == "miopen" and not setting.vendor_library:
        return False
    places = {operator: rung for rung, (_, operator) in PLACES.items()}
    if LAYERS.get(places[fault.operator]) in setting.pytorch_layers:
        return False
    return fault.matches(setting.name, "", "float32", "", environ)


def outcome(draw: Draw, machine: SimulatedMachine, found: Results) -> tuple[str, str]:
    """Return the outcome (see ``OUTCOMES``) and the recommended setting of a run on the machine."""
    setting = found.setting(found.recommended)
    if setting is None or setting.device == "cpu":
        return "none", found.recommended or ""
    if can_fail(machine, setting):
        return "wrong", setting.name
    same = _effect(machine, setting) == _effect(machine, draw.cure)
    return ("same" if same else "another"), setting.name


def _effect(machine: SimulatedMachine, setting: Setting) -> tuple[Any, ...]:
    environ = environment(setting, machine.environment({}))
    environ.pop(_FFT, None)
    if setting.one_device:
        # A run knows which device is the first.
        environ["HIP_VISIBLE_DEVICES"] = "0"
    return (
        environ, setting.pytorch_layers, setting.vendor_library, setting.bypass, setting.one_device,
    )  # fmt: skip


def climb(file: Path) -> None:
    """Climb the ladder on the simulated machine in ``file``, and print how long it took."""
    started = time.monotonic()
    folder = run.begin(RunOptions(simulate=str(file)), file.with_suffix(""))
    start_fork_server()
    journal = RunJournal(folder)
    setup = setup_of(journal.run, folder)
    session = Session(setup, journal)
    (target,) = setup.targets
    session.plan(tuple(default_cases(setup, target)))
    cases, answers = 0, list[float]()
    for case in session.climbing((), lambda: answers.append(time.monotonic() - started)):
        session.outcome(case)
        cases += 1
    session.close(at_once=False)
    journal.append(End(run.now()))
    sentence = getattr(write_report(journal).results.recommendation, "sentence", "")
    seconds = time.monotonic() - started
    print(
        f"{file.stem}: {cases} cases in {seconds:.0f} s, first answer after {answers[0]:.0f} s.",
        sentence,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("action", choices=("draw", "climb", "count"))
    parser.add_argument("folder", type=Path, help="folder of the machines, or the file of one to climb")
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.action == "climb":
        climb(arguments.folder)
        return
    drawn = list(draws(arguments.machines, arguments.seed, arguments.folder))
    if arguments.action == "draw":
        print(f"{len(drawn)} machines in {arguments.folder}")
        return
    counted, answered = Counter[str](), Counter[str]()
    recordings = Recordings(arguments.folder / "recordings")
    rows = []
    for number, (draw, machine) in enumerate(drawn):
        folder = arguments.folder / draw.name
        with recording(recordings, number):
            _, results = oracle_run(folder.with_suffix(".toml"), arguments.folder / "run", whole=False)
        without_trials = outcome(draw, machine, results)
        path = folder / "results.json"
        tried = outcome(draw, machine, read_results(path)) if path.exists() else ("not run", "")
        counted[tried[0]] += 1
        answered[without_trials[0]] += 1
        size = f"above {draw.largest} pixels" if draw.largest else ""
        row = (draw.name, draw.rung, draw.chip.isa, draw.effect, draw.rate, size, draw.cure.name)
        rows.append((*row, *without_trials[::-1], *tried[::-1]))
    command = f"python benchmarks/cures.py count --machines {arguments.machines} --seed {arguments.seed}"
    head = ("machine", "rung", "chip", "effect", "rate", "size", "cure")
    head = (*head, "oracle", "outcome", "trials", "outcome")
    # The last two columns are the results of trials.
    columns = len(head) if counted.keys() - {"not run"} else len(head) - 2
    lines = [
        *heading("Cures of drawn faults", command),
        *(
            f"{source}: {', '.join(f'{name} {each[name]}' for name in (*OUTCOMES, 'not run') if each[name])}."
            for source, each in (
                ("With the oracle", answered),
                ("With trials", counted),
            )
        ),
        "",
        *table(head[:columns], (row[:columns] for row in rows), texts=columns),
    ]
    publish(lines, arguments.output)


if __name__ == "__main__":
    main()
