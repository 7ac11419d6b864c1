"""One outcome, fact, time or amount of memory is changed: the recommendation changes when, and only when, it
should (the rule is in docs/how-it-decides.md)."""

from __future__ import annotations

import dataclasses

import mutations
import pytest
import sample
from rows import every_row
from synthetic import STATUS, blocked_by_convolution, everywhere, natively, run

from rocmprobe.judge.judgement import judge
from rocmprobe.model.results import Fact

DEAD = {**natively(STATUS), **blocked_by_convolution()}
FEW = {"wanted": "no-winograd,gemm-only,vendor-off,bypass,bypass+vendor-off,cpu"}
WORLDS = {
    "healthy": run(**FEW),
    "native dead": run(DEAD, **FEW),
    "native dead, for inference": run(DEAD, purpose="inference", **FEW),
    "one switch cures": run({**everywhere("wrong"), "no-winograd/convolution/*": "pass"}, **FEW),
    "only the CPU": run({**everywhere("error"), **everywhere("blocked", "training-step/*")}, **FEW),
    "nothing": run({"*/convolution/*": "wrong"}, **FEW),
    "half precision broken": run({"*/convolution/*fp16*": "wrong", "gemm-only/*": "pass"}, **FEW),
    "of the report's tests": sample.rdna1(),
}


#: The whole rule shows in these; the others have more outcomes of the same kinds.
QUICK = ("healthy", "native dead, for inference", "half precision broken")


@pytest.mark.parametrize("world", [*QUICK, pytest.param("one switch cures", marks=pytest.mark.thorough)])
def test_it_changes_when_and_only_when_it_should(world):
    assert mutations.check_outcomes(WORLDS[world]) > 0


@every_row("check", [mutations.check_facts, mutations.check_settings])
@every_row("world", WORLDS)
def test_facts_and_settings_that_nobody_recommends_change_nothing(world, check):
    assert check(WORLDS[world]) > 0


def timed(results, setting, factor):
    """The setting takes ``factor`` times as long."""
    outcomes = tuple(
        dataclasses.replace(each, timings={key: factor * value for key, value in each.timings.items()})
        if (each.setting, each.check) == (setting, "throughput")
        else each
        for each in results.outcomes
    )
    return dataclasses.replace(results, outcomes=outcomes)


@every_row("factor", [1.0, 1.05, 0.95, 3.0, 0.3])
@every_row("setting", ["vendor-off", "bypass", "cpu", "no-winograd"])
def test_a_time_matters_beyond_noise_and_of_right_settings_on_the_device(setting, factor):
    found = mutations.answers(timed(WORLDS["native dead"], setting, factor))["float32/training"]
    # The bypass has a second setting of the same speed, so that it cannot become slow by one of them.
    slower, faster = setting == "vendor-off" and factor > 1.1, setting == "bypass" and factor < 0.9
    assert found[0] == ("bypass" if slower or faster else "vendor-off")


@every_row(("factor", "verdict"), [(0.9, "native"), (0.7, "native"), (0.3, "vendor-off")])
def test_a_working_machine_is_changed_for_a_gain_that_no_noise_explains(factor, verdict):
    assert mutations.answers(timed(WORLDS["healthy"], "vendor-off", factor))["float32/training"][0] == verdict


class TestAdvice:
    """It follows the facts, which the choice does not."""

    def of(self, **facts):
        results = WORLDS["native dead"]
        machine = results.machine
        torch = {"torch.version": Fact(facts.get("torch", "2.0.1+rocm5.4.2"), "torch")}
        gpu = machine.gpus[0]
        if "isa" in facts:
            native, effective = facts["isa"]
            gpu = dataclasses.replace(gpu, native_isa=Fact(native), effective_isa=Fact(effective))
        machine = dataclasses.replace(machine, gpus=(gpu,), facts={**machine.facts, **torch})
        isas = {"native_isa": gpu.native_isa.value, "effective_isa": gpu.effective_isa.value}
        outcomes = tuple(dataclasses.replace(each, **isas) for each in results.outcomes)
        found = judge(dataclasses.replace(results, machine=machine, outcomes=outcomes)).recommendation
        assert (found.verdict, found.configuration.setting) == ("vendor-off", "vendor-off")
        return [row["title"] for row in found.advice]

    def test_of_a_version_and_an_isa(self):
        # Of a version.
        broken = (
            "Convolution crashes or hangs with ROCm 5.3 and newer on RDNA1 cards that pretend to be gfx1030"
        )
        assert self.of()[0] == broken
        assert broken not in self.of(torch="1.13.1+rocm5.2")
        posing = "PyTorch's wheels for ROCm 5.2: gfx1010 as gfx1030"
        assert posing in self.of()
        assert posing not in self.of(torch="1.13.1+rocm5.2")

        # Of an ISA.
        amd = "AMD's stable wheels of ROCm 10.1, with a package for each chip"
        assert f"{amd}: gfx1010" in self.of()
        assert self.of(isa=("gfx1102", "gfx1100"), torch="2.3.0+rocm6.0")[:2] == [
            "ROCm 6.0 and newer break gfx1102 cards that pretend to be gfx1100",
            f"{amd}: gfx1102",
        ]
        assert self.of(isa=("gfx1100", "gfx1100"), torch="2.3.0+rocm6.0") == []
        assert self.of(isa=(None, None)) == []
