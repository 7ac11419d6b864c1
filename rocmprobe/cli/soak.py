"""``rocmprobe soak``: repeats a training step for minutes and checks that its result stays the same."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import click

from rocmprobe.cli.base import exit_code_command, needs_linux
from rocmprobe.model.exit_codes import FINDINGS, INTERRUPTED, NOTHING, OK, WEDGED
from rocmprobe.model.results import BadInput, NothingToTest, Outcome, Results, Setting
from rocmprobe.model.results_file import RECOMMENDED, read_results
from rocmprobe.process.signals import ending_in_order

#: Seconds between two plain lines if the output is not a terminal.
_LINE_EVERY = 10.0
_PREPARING = "preparing: the network's first calls may compile kernels"
#: Largest number of lines about the comparison and the sensors. Largest number of findings in addition to the
#: verdict.
_FACTS_SHOWN, _FINDINGS_SHOWN = 3, 2


@click.command("soak")
@click.argument("results", required=False, type=click.Path(path_type=Path), metavar="[RESULTS|FOLDER]")
@click.option("--minutes", type=click.FloatRange(0.05, 10080), default=10, show_default=True,
              metavar="MINUTES", help="Duration of the soak.")  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Use this setting, not the recommended one.")  # fmt: skip
@click.option("--device", default="auto", help="auto, cpu or cuda:N (auto: the device of the results).")
@click.option("--stop-at", type=click.FloatRange(40, 150), metavar="CELSIUS",
              help="Stop at this temperature (default: the limits of the card).")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of this run.")
@click.option("--simulate", default="", metavar="MACHINE",
              help="A simulated machine (rocmprobe list machines), or its TOML file.")  # fmt: skip
@click.option(
    "--no-redact", is_flag=True, help="Keep names, addresses and the like (docs/reporting-a-bug.md)."
)
@exit_code_command
@ending_in_order()
def soak_command(
    results: Optional[Path], minutes: float, setting: str, device: str, stop_at: Optional[float],
    out: Optional[Path], simulate: str, no_redact: bool,
) -> int:  # fmt: skip
    """Repeat one training step for minutes, and compare the results.

    Shows if an undervolted, overclocked or used card is stable under the recommended configuration. The
    command watches temperature, power and the kernel's log, and stops at the temperature limit of the card.
    Exits 1 unless the device is stable (docs/what-is-measured.md).

    \b
    Examples:
      rocmprobe soak
      rocmprobe soak --minutes 60 --stop-at 100
      rocmprobe soak reports/latest --setting bypass
    """
    if why := needs_linux("soak"):
        raise NothingToTest(why)
    from rocmprobe.cli.run import Display, settled
    from rocmprobe.cli.verify import same_override
    from rocmprobe.engine import run
    from rocmprobe.engine.journal import journal_of
    from rocmprobe.engine.options import RunOptions
    from rocmprobe.judge.recommendation.configuration import isa_override
    from rocmprobe.process.leftovers import remove_leftovers
    from rocmprobe.text.console import Console

    if os.environ.get("ROCMPROBE_EXEC"):
        raise BadInput("a soak cannot be started under `rocmprobe exec`; start it directly")
    remove_leftovers()
    expected = _results(results, simulate)
    name = setting or (expected.recommended if expected else None) or "default"
    if expected and not setting and not expected.recommended:
        raise BadInput("these results recommend no configuration; name one with --setting")
    if expected and not simulate:
        same_override(isa_override(expected), os.environ, "soak")
    options = RunOptions(
        device=_device(device, expected, simulate), settings=f"{name},", only=("soak",),
        minutes=minutes, stop_at=stop_at or 0, simulate=simulate or None, redact=not no_redact,
    )  # fmt: skip
    try:
        folder = run.begin(options, out, _derived(name, expected)).resolve()
    except BadInput as error:
        raise BadInput(str(error).replace("--settings:", "--setting:", 1)) from error
    console = Console()
    progress = SoakProgress(folder, 60 * minutes)
    code, found = settled(folder, 1, (), Display(console), progress)
    if found is None:
        return code
    outcome = next((each for each in found.outcomes if each.check == "soak"), None)
    _show(found, outcome, folder, console)
    if code == INTERRUPTED:
        return code
    return WEDGED if journal_of(folder).state.wedged else _exit_code(found, outcome)


def _results(path: Optional[Path], simulate: str) -> Optional[Results]:
    """Return the results at ``path``, by default the results of the recommended run.

    In a simulation, or if no recommended run exists, the default is None.

    Raise BadInput if the results cannot be read, or if only one of results and soak is simulated.
    """
    if path is None:
        if simulate or not RECOMMENDED.exists():
            return None
        path = RECOMMENDED
    results = read_results(path / "results.json" if path.is_dir() else path)
    if bool(results.simulated) != bool(simulate):
        mend = f"add --simulate {results.simulated}" if results.simulated else "leave out --simulate"
        of = f"the simulated machine {results.simulated}" if results.simulated else "a real machine"
        raise BadInput(f"{path}: these results are from {of}; {mend}, or name other results")
    return results


def _derived(name: str, expected: Optional[Results]) -> Optional[Setting]:
    """Return the setting ``name`` from ``expected`` if the setting is derived, else None.

    A derived setting has variables or layers that a run chose.

    Raise BadInput if a soak cannot run under this setting.
    """
    from rocmprobe.knowledge.layers import refuse_underived
    from rocmprobe.knowledge.settings import all_settings

    found = expected.setting(name) if expected else None
    if found and found.derived and not found.is_incomplete:
        refuse_underived(found, "soak")
        return found
    rows = [each for each, _, _ in all_settings() if each.name == name]
    if any(each.derived for each in rows):
        raise BadInput(
            f"--setting {name}: only a run can derive this setting; name the results of such a run"
        )
    if any(each.changes_problems for each in rows):
        raise BadInput(
            f"--setting {name}: a soak trains in float32 on contiguous images; name another setting"
        )
    return None


def _device(device: str, expected: Optional[Results], simulate: str) -> str:
    """Return the device to test, for ``auto`` the device of ``expected``.

    Raise BadInput for ``all``. Raise NothingToTest if torch cannot use the GPU.
    """
    from rocmprobe.detect.machine import detect_devices
    from rocmprobe.engine.targets import find_targets
    from rocmprobe.judge.assessment import device_of

    if device == "all":
        raise BadInput("--device all: a soak tests one device; name it, for example cuda:0")
    if device != "auto" or simulate:
        return device
    if expected:
        return device_of(expected) or device
    here = detect_devices()
    if here.gpus and find_targets("auto", here)[0].device == "cpu":
        raise NothingToTest("this torch cannot use the GPU; see `rocmprobe install`, or add --device cpu")
    return device


def _exit_code(results: Results, outcome: Optional[Outcome]) -> int:
    from rocmprobe.judge.findings.stability import is_stable

    if outcome is None or (not outcome.learned and not outcome.numerics and outcome.state != "probe-error"):
        return NOTHING
    return OK if is_stable(outcome) else FINDINGS


def _show(results: Results, outcome: Optional[Outcome], folder: Path, console: Any) -> None:
    from rocmprobe.judge.findings.stability import sentence
    from rocmprobe.report import text

    lines = []
    if results.simulated:
        lines.append(f"SIMULATED: {results.simulated}. Nothing ran on a GPU; each step counts as 5 s.")
    if outcome:
        setting = results.setting(outcome.setting)
        gpu = f"{outcome.device} ({outcome.native_isa or 'unknown chip'})"
        on_cpu = "cpu" in (outcome.device, setting.device if setting else None)
        lines.append(f"tested: setting {outcome.setting} on {'the CPU' if on_cpu else gpu}")
    finding = next((each for each in results.findings if each.id.startswith("soak-")), None)
    if finding:
        known = [each for each in finding.evidence[1:] if not each.startswith("kernel: ")]
        lines += [text.one_line(each, 200) for each in known[:_FACTS_SHOWN]]
    others = [each for each in results.findings if each is not finding and each.cause == "thermal-throttling"]
    lines += [f"{each.severity}: {text.one_line(each.title)}" for each in others[:_FINDINGS_SHOWN]]
    if finding and finding.severity != "info":
        lines.append(f"What to do: {text.one_line(finding.advice, 400)}")
    lines.append(f"report.html  {folder / 'report.html'}")
    for line in lines:
        console.print(line, soft_wrap=True)
    verdict = sentence(outcome, results) if outcome else "Nothing was tested."
    stable = finding is not None and finding.severity == "info" and verdict.startswith("Stable")
    console.print(text.one_line(verdict, 600), style="bold green" if stable else "bold red", soft_wrap=True)


class SoakProgress:
    """Display of the soak in ``folder`` during a ``with`` block."""

    def __init__(self, folder: Path, seconds: float) -> None:
        from rocmprobe.cli.progress import RunConsole
        from rocmprobe.engine.journal import NAME, Appended

        self._console = RunConsole()
        self._appended = Appended(folder / NAME)
        self._wanted = seconds
        self._progress: Mapping[str, Any] = {}
        self._reading: Mapping[str, float] = {}
        self._waiting = _PREPARING
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._watcher.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._watcher.join(5)

    def _watch(self) -> None:
        with suppress(BrokenPipeError):
            if self._console.is_terminal:
                self._live()
            else:
                self._plain()

    def _live(self) -> None:
        from rich.live import Live
        from rich.text import Text

        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while not self._over.wait(0.5):
                self._follow()
                live.update(Text(self._line(), no_wrap=True, overflow="ellipsis"), refresh=True)

    def _plain(self) -> None:
        spoke = time.monotonic() - _LINE_EVERY
        while not self._over.wait(0.2):
            self._follow()
            if time.monotonic() - spoke >= _LINE_EVERY:
                spoke = time.monotonic()
                self._console.print(self._line(), soft_wrap=True)

    def _follow(self) -> None:
        # Ignore the error, because the session itself ends the run if the journal cannot be read.
        with suppress(OSError):
            for record in self._appended.new():
                if record["record"] == "progress":
                    self._progress = record["progress"]
                    self._reading = record["conditions"].get("after", {})
                elif record["record"] == "waiting" and record["phase"] == "device":
                    waits = record["left"] is None
                    self._waiting = "waiting for another run that uses the device" if waits else _PREPARING

    def _line(self) -> str:
        from rocmprobe.model.telemetry import CHIP
        from rocmprobe.text.durations import duration

        if not self._progress.get("steps"):
            return self._waiting
        steps, mismatches = self._progress["steps"], self._progress["mismatches"]
        left = max(0, self._wanted - self._progress["seconds"])
        words = [f"{steps:,} step{'' if steps == 1 else 's'}", f"{duration(left)} left"]
        hottest = next((name for name in CHIP if name in self._reading), "")
        if hottest:
            words.append(f"{self._reading[hottest]:.0f} °C")
        if "power_w" in self._reading:
            words.append(f"{self._reading['power_w']:.0f} W")
        many = "" if mismatches == 1 else "es"
        words.append(f"{mismatches:,} mismatch{many}" if mismatches else "no mismatch")
        return "  ".join(words)
