"""``rocmprobe warm``: fills the databases and caches of ``exec`` in advance, and exports or imports them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional

import click

from rocmprobe.cli.base import describe_holder, exit_code_command, needs_linux
from rocmprobe.model.exit_codes import FINDINGS, INTERRUPTED, OK, WEDGED
from rocmprobe.model.results import BadInput
from rocmprobe.process.signals import ending_in_order
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.printing import print_stderr, say

if TYPE_CHECKING:
    from rocmprobe.checks.tools.case import Case
    from rocmprobe.exec.pack import StagedPack
    from rocmprobe.exec.warming import ConfiguredDevice, FirstCall

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("warm")
@click.option("--shapes", type=_FILE, metavar="FILE",
              help="The convolutions of a program, as recorded by `rocmprobe shapes`.")  # fmt: skip
@click.option("--profile", type=click.Path(path_type=Path), metavar="RESULTS",
              help="Results with the configuration (default: reports/recommended/results.json).")  # fmt: skip
@click.option("--setting", default="", metavar="NAME",
              help="Use this setting of the results, not the recommended one.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
              help="Skip a first call that takes longer (default: 300).")  # fmt: skip
@click.option("--retry", is_flag=True, help="Run again what an earlier `rocmprobe warm` skipped.")
@click.option("--again", is_flag=True, help="Run everything again, even if it is warm.")
@click.option("--pack", type=_FILE, metavar="FILE", help="Write MIOpen's databases and kernels to a file.")
@click.option("--unpack", type=_FILE, metavar="FILE",
              help="Test the databases and kernels in a packed file, and use them.")  # fmt: skip
@click.option("--yes", is_flag=True, help="With --unpack: agree to run code that somebody else compiled.")
@click.option("--simulate", default="", metavar="MACHINE",
              help="The simulated machine of the results, or its TOML file.")  # fmt: skip
@exit_code_command
@ending_in_order()
def warm_command(
    shapes: Optional[Path], profile: Optional[Path], setting: str, limit: Optional[float], retry: bool,
    again: bool, pack: Optional[Path], unpack: Optional[Path], yes: bool, simulate: str,
) -> int:  # fmt: skip
    """Fill the databases and caches of `rocmprobe exec` ahead of time.

    With --shapes, runs the convolutions of a program. --pack and --unpack share the databases and compiled
    kernels with owners of the same GPU (docs/training-with-the-bypass.md). Each direction of each problem
    runs in two new processes, one after the other. The output shows how long the first call took with cold
    caches ("before") and with warm caches ("after"). A call that fails or takes too long is skipped. After
    Ctrl-C, run the same command again to continue.

    \b
    Examples:
      rocmprobe warm --shapes shapes.json
      rocmprobe warm --shapes shapes.json --pack caches.zip
      rocmprobe warm --unpack caches.zip --yes
    """
    if why := needs_linux("warm"):
        raise BadInput(why)
    from rocmprobe.exec.command import CONDITIONS

    if os.environ.get(CONDITIONS):
        raise BadInput("caches cannot be warmed under `rocmprobe exec`; start `rocmprobe warm` directly")
    if unpack and (shapes or pack):
        raise BadInput("--unpack: cannot be combined with --shapes or --pack; call `rocmprobe warm` twice")
    if not (shapes or pack or unpack):
        raise BadInput("nothing to do: name the shapes of a program with --shapes, or --pack or --unpack")
    from rocmprobe.exec.warming import cases_of, configured_device, warmed
    from rocmprobe.model.shapes import read_shapes

    if unpack:
        from rocmprobe.exec.pack import open_pack

        with open_pack(unpack) as opened:
            on = configured_device(profile, setting, simulate, limit)
            opened.require_fit(on)
            if not yes:
                raise BadInput(opened.warning)
            with on.alone():
                return _test_and_install(opened.unpack(on))
    problems = read_shapes(shapes).problems if shapes else ()
    on = configured_device(profile, setting, simulate, limit)
    with on.alone():
        code = _warm(on, cases_of(on, problems), again, retry) if shapes else OK
        if pack and code in (OK, FINDINGS):
            from rocmprobe.exec.pack import write_pack

            wanted = {case.id for case in cases_of(on, problems)}
            served = [case for case in warmed(on) if not shapes or case.id in wanted]
            say(f"Packed {write_pack(pack, on, served)} in {pack}.")
    return code


def _warm(on: ConfiguredDevice, cases: Sequence[Case], again: bool, retry: bool) -> int:
    from rocmprobe.engine.lease import lease_name
    from rocmprobe.exec.caches import content
    from rocmprobe.exec.warming import is_wedged, warm

    print_stderr(f"warming {on.caches.folder} under the setting {on.setting.name} of {on.path}")
    if not on.simulated and (busy := describe_holder(lease_name(on.target))):
        print_stderr(f"waiting for {busy}")
    found: list[FirstCall] = []
    before = content(on.caches)
    code = INTERRUPTED
    try:
        for each in warm(on, cases, again, retry):
            found.append(each)
            say(_row(each))
        code = OK if all(each.outcome.works for each in found) else FINDINGS
    except KeyboardInterrupt:
        print_stderr("interrupted; run the same command to continue")
    served = [each for each in found if each.outcome.works]
    after = content(on.caches)
    first, now = sum(each.before for each in served), sum(each.after for each in served)
    say(
        f"{len(served)} of {len(cases)} first calls are warm: {first:.3g} s before, {now:.3g} s after. "
        f"Compiled kernels in the cache: {before.kernels} before, {after.kernels} after. "
        f"Records of searches: {before.records} before, {after.records} after."
    )
    if skipped := len(found) - len(served):
        say(f"{skipped} skipped. --retry runs them again.")
    return WEDGED if is_wedged(on) else code


def _row(each: FirstCall) -> str:
    what = f"{each.case.problem} {each.case.direction}:"
    if each.why_skipped:
        return f"{what} skipped, {one_line(each.why_skipped)}"
    earlier = " (warm already)" if each.earlier else ""
    return f"{what} {each.before:.3g} s before, {each.after:.3g} s after{earlier}"


def _test_and_install(staged: StagedPack) -> int:
    """Test a staged cache pack, and install the pack if all results are correct."""
    folder, failed = staged.on.caches.folder, 0
    print_stderr(f"testing {len(staged.manifest.shapes)} first calls before {folder} is replaced")
    try:
        for outcome in staged.test():
            said = f": {one_line(outcome.evidence[0])}" if outcome.evidence and not outcome.works else ""
            say(f"{outcome.problem} {outcome.direction}: {outcome.state}{said}")
            failed += not outcome.works
        former = [] if failed else staged.adopt()
    finally:
        staged.discard()
    if failed:
        print_stderr(f"{failed} of {len(staged.manifest.shapes)} failed: the pack is not used")
        return FINDINGS
    say(f"`rocmprobe exec` uses the pack now, in {folder}.")
    for each in former:
        say(f"The former files are in {each}.")
    return OK
