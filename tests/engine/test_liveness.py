"""Rules that tell a hang from a search, and the recognition of hangs on simulated machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import PROBLEM, kinds, named_machine, run

from rocmprobe.engine.budgets import BUDGETS, Limits
from rocmprobe.engine.journal import Waiting, records
from rocmprobe.engine.liveness import BusySensor, Sample, Verdict, judge

QUICK = BUDGETS["quick"]
FIRST = QUICK.limits("first-call")
HANG = 20
#: Growth of each counter per second, by what a worker does.
IDLE: dict[str, float] = {}
BUSY = {"cpu": 1}
COMPILES = {"cpu": 1, "pages": 200}
READS = {"read": 1 << 20, "cpu": 0.1}


def samples(
    seconds: int = 20, gpu: float | None = 0, compiler: bool = False, **growth: float
) -> list[Sample]:
    """Samples of a worker that did one thing for ``seconds``, from the third on."""
    return [
        Sample(at, gpu, compiler=compiler, **{name: int(each * at) for name, each in growth.items()})  # type: ignore[arg-type]
        for at in range(2, seconds + 1)
    ]


class TestRules:
    @pytest.mark.parametrize(
        ("given", "activity", "limit"),
        [
            # One small problem keeps the GPU busy, however the process waits for it.
            (samples(gpu=99, **IDLE), "gpu-busy", HANG),
            (samples(gpu=99, **BUSY), "gpu-busy", HANG),
            (samples(gpu=99, **COMPILES), "gpu-busy", 180),
            (samples(gpu=99, compiler=True), "compiler-child", 180),
            # Everything is idle.
            (samples(**IDLE), "idle", HANG),
            (samples(seconds=15), "idle", 2 + HANG),
            (samples(seconds=30)[20:], "idle", 22 + HANG),
            # The GPU is idle, and something is at work.
            (samples(**COMPILES), "compiling", 180),
            (samples(compiler=True), "compiler-child", 180),
            (samples(stored=1), "compiling", 180),
            (samples(**READS), "idle", 180),
            # A loop that waits uses no new memory.
            (samples(**BUSY), "busy", HANG),
            (samples(cpu=1, pages=1), "busy", HANG),
            # Without a sensor.
            (samples(gpu=None, **IDLE), "idle", 60),
            (samples(gpu=None, **BUSY), "busy", 60),
            (samples(gpu=None, **COMPILES), "busy", 180),
            # Two threads that wait, and three of an emulated GPU.
            (samples(gpu=None, cpu=2), "busy", 60),
            (samples(gpu=None, cpu=3), "busy", 180),
            (samples(cpu=3), "busy", HANG),
            (samples(gpu=None, compiler=True), "compiler-child", 180),
        ],
    )
    def test_first_call(self, given: list[Sample], activity: str, limit: float) -> None:
        assert judge(given, FIRST) == Verdict(activity, limit)

    def test_only_the_last_seconds_count(self) -> None:
        compiled = samples(30, **COMPILES)
        last = compiled[-1]
        stuck = [Sample(30.0 + at, 99, last.cpu, last.pages) for at in range(1, 22)]
        assert judge(compiled + stuck[:10], FIRST).limit == 180
        assert judge(compiled + stuck, FIRST) == Verdict("gpu-busy", HANG)

    def test_a_gpu_that_works_now_and_then_is_no_sign(self) -> None:
        mixed = [Sample(at, 99 * (at % 2)) for at in range(2, 21)]
        assert judge(mixed, FIRST) == Verdict("idle", 60)
        once = [Sample(at, 99 if at != 9 else 0) for at in range(2, 21)]
        assert judge(once, FIRST) == Verdict("gpu-busy", HANG)
        # The sensor stops answering.
        assert judge([Sample(at, 99 if at < 10 else None) for at in range(2, 21)], FIRST).limit == 60

    @pytest.mark.parametrize(
        ("desktop", "gpu", "verdict"),
        [
            (40.0, 45, Verdict("idle", HANG)),
            (40.0, 99, Verdict("gpu-busy", HANG)),
            (90.0, 99, Verdict("idle", 60)),
            (90.0, 0, Verdict("idle", 60)),
        ],
    )
    def test_the_load_before_the_run_counts_as_idle(
        self, desktop: float, gpu: float, verdict: Verdict
    ) -> None:
        assert judge(samples(gpu=gpu), FIRST, desktop) == verdict

    def test_the_phase(self) -> None:
        assert judge(samples(gpu=99), QUICK.limits("steady")).limit == HANG
        assert judge(samples(**COMPILES), QUICK.limits("steady")).limit == 60
        assert judge(samples(gpu=None, cpu=2), QUICK.limits("steady")).limit == 60
        assert judge(samples(gpu=None, cpu=3), QUICK.limits("steady")).limit == 180
        # References are computed on the CPU.
        assert judge(samples(**BUSY), QUICK.limits("prepare")).limit == 60
        assert judge(samples(**IDLE), QUICK.limits("prepare")).limit == HANG
        assert judge(samples(110, **IDLE), QUICK.limits("start")).limit == 120
        # A short limit stands before the rules.
        assert judge(samples(2), Limits(20, 60, 2)).limit == 2

    def test_longer_levels_keep_their_limit_without_a_sensor(self) -> None:
        assert judge(samples(80, gpu=None), BUDGETS["standard"].limits("first-call")).limit == 300
        assert judge(samples(80, gpu=None), BUDGETS["long"].limits("first-call")).limit == 600
        assert judge(samples(80, gpu=99), BUDGETS["long"].limits("first-call")).limit == 60


def test_the_sensor_of_a_device(tmp_path: Path) -> None:
    assert BusySensor(str(tmp_path)).read() is None
    (tmp_path / "gpu_busy_percent").write_text("7\n")
    sensor = BusySensor(str(tmp_path))
    (tmp_path / "gpu_busy_percent").write_text("99\n")
    assert (sensor.idle_percent, sensor.read()) == (7, 99)
    # Reading would wake a suspended GPU.
    (tmp_path / "power").mkdir()
    (tmp_path / "power" / "runtime_status").write_text("suspended\n")
    assert sensor.read() == 0


ONE = ("--only", "*/default/convolution/*", "--settings", "default,", "--problem", PROBLEM)


@pytest.mark.parametrize(
    ("machine", "activity"),
    [
        ("kernel-never-ends", "gpu-busy"),
        pytest.param("blocked-in-driver", "idle", marks=pytest.mark.thorough),
        pytest.param("spin-wait", "busy", marks=pytest.mark.thorough),
    ],
)
def test_a_machine_that_hangs(tmp_path: Path, machine: str, activity: str) -> None:
    done = run(tmp_path / "out", "--simulate", named_machine(machine), *ONE)
    outcome = done.of("default")
    assert outcome.activity == activity
    assert f"no answer in 1 s in phase first-call, {activity}" in outcome.evidence
    assert [each.state for each in outcome.attempts] == ["hang"] * 2


@pytest.mark.thorough
def test_a_machine_that_compiles_long(tmp_path: Path) -> None:
    done = run(tmp_path / "out", "--simulate", named_machine("compiles-long"), *ONE)
    assert done.of("default").works
    waits = [each for each in records(tmp_path / "out") if isinstance(each, Waiting)]
    assert any(each.compiles and each.phase == "first-call" for each in waits)
    assert kinds(tmp_path / "out").count("trial") == 1


@pytest.mark.thorough
def test_a_hang_is_repeated_once_in_a_run(tmp_path: Path) -> None:
    arguments = ("--only", "convolution", "--settings", "find-fast,", "--problem", PROBLEM)
    done = run(tmp_path / "out", "--simulate", named_machine("kernel-never-ends"), *arguments)
    hangs = [each for each in done.outcomes.values() if {try_.state for try_ in each.attempts} == {"hang"}]
    assert len(hangs) > 1
    assert sorted(len(each.attempts) for each in hangs) == [1] * (len(hangs) - 1) + [2]
