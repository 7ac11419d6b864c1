"""What the two drivers say together."""

from __future__ import annotations

import dataclasses

from synthetic import FP32, STATUS, card, everywhere, natively, run

from rocmprobe.judge.assessment import driver_of
from rocmprobe.judge.findings.diagnose import diagnose
from rocmprobe.judge.recommendation.recommend import recommend
from rocmprobe.model.results import Fact, Trial

ASKED = ("copy", "elementwise", "gemm", "convolution", "batch-norm")


def by_capi(results, changes=None, alone=False):
    """``results`` with the same questions to capi, as far as it has them; all right but for ``changes``."""
    direct = []
    for outcome in results.outcomes:
        if outcome.check in ASKED and outcome.setting in ("default", "gemm-only", "naive-only"):
            name = outcome.id.replace("/torch/", "/capi/")
            good = {"state": "pass", "cause": None, "evidence": ()}
            change = next((new for part, new in (changes or {}).items() if part in name), good)
            direct.append(dataclasses.replace(outcome, id=name, driver="capi", **change))
    if alone:
        names = {outcome.setting for outcome in direct}
        for setting in names - {"default"}:
            batch_norm = next(each for each in direct if each.check == "batch-norm")
            name = batch_norm.id.replace("/default/", f"/{setting}/")
            direct.append(dataclasses.replace(batch_norm, id=name, setting=setting))
    outcomes = tuple(direct) if alone else (*results.outcomes, *direct)
    return dataclasses.replace(results, outcomes=outcomes)


def findings(results):
    return {finding.id: finding for finding in diagnose(results)}


def test_what_one_driver_fails_and_the_other_computes():
    # Both right is no finding.
    results = by_capi(run())
    assert not {"driver-torch", "driver-capi"} & set(findings(results))
    assert driver_of(results) == "torch"

    # Torch fails what MIOpen alone computes.
    results = by_capi(run(natively(STATUS)))
    finding = findings(results)["driver-torch"]
    assert (finding.severity, finding.layer) == ("error", "torch-build")
    assert "MIOpen works when called directly, so the fault is in how PyTorch calls it" in finding.title
    assert any("/torch/default/" in line for line in finding.evidence)
    assert any("/capi/default/" in line for line in finding.evidence)
    assert findings(results)["native-convolution"].layer == "miopen-find"

    # What passes without torch and was blocked with it is named.
    blocked = {"state": "blocked", "cause": "rung:elementwise", "evidence": ()}
    broken = {**natively(STATUS, "elementwise/float32"), **natively(blocked, "gemm/*"), **natively(blocked)}
    advice = findings(by_capi(run(broken)))["driver-torch"].advice
    assert "These checks could not run in PyTorch, but pass without it: gemm and convolution." in advice

    # Both fail is evidence against MIOpen.
    results = by_capi(run(natively(STATUS)), {"/convolution/": STATUS})
    found = findings(results)
    assert "driver-torch" not in found
    evidence = "\n".join(found["native-convolution"].evidence)
    assert (
        "of 6 tests that ran with and without PyTorch, 6 fail in both cases: the fault is in MIOpen itself"
        in evidence
    )
    assert f"/capi/default/convolution/{FP32}/fwd" in evidence

    # What capi alone fails changes nothing for PyTorch.
    results = by_capi(run(), {"/gemm/": {"state": "error"}, "/convolution/": STATUS})
    found = findings(results)
    assert found["driver-capi"].severity == "info"
    assert not [name for name in found if name.startswith(("rung-", "native"))]
    assert recommend(results) == recommend(run())


def test_other_copies_of_the_library_are_named():
    def trial(driver, path):
        fields = ("cuda:0", driver, "default", "spawn", "0")
        return Trial(f"cuda:0/{driver}/default#1", *fields, mapped={"libMIOpen": (path,)})

    results = dataclasses.replace(
        by_capi(run(natively(STATUS))), trials=(trial("torch", "/a.so"), trial("capi", "/b.so"))
    )
    finding = findings(results)["driver-torch"]
    assert "another copy of MIOpen works" in finding.title
    assert "libMIOpen: torch has /a.so; capi has /b.so" in finding.evidence

    # Two copies in one process.
    mapped = {"libamdhip64": ("/opt/rocm/lib/libamdhip64.so.6", "/site/torch/lib/libamdhip64.so")}
    trial = Trial("cuda:0/torch/default#1", "cuda:0", "torch", "default", "spawn", "0", mapped=mapped)
    finding = findings(dataclasses.replace(run(), trials=(trial,)))["two-copies"]
    assert (finding.severity, finding.cause, finding.layer) == ("warning", "library-path", "user-env")
    assert "/site/torch/lib/libamdhip64.so" in finding.evidence[0]


def test_capi_alone_with_a_part_broken():
    # Capi alone recommends a setting.
    broken = {"/default/convolution/": STATUS}
    recommendation = recommend(by_capi(run(), broken, alone=True))
    assert recommendation.verdict == "native-with-settings"
    assert recommendation.configuration.setting in ("gemm-only", "naive-only")
    assert recommendation.configuration.env
    assert "without PyTorch" in recommendation.sentence

    # Capi alone with batch norm broken is told layer by layer.
    recommendation = recommend(by_capi(run(), {"/batch-norm/": STATUS}, alone=True))
    assert (recommendation.verdict, recommendation.configuration.setting) == ("native", "default")
    assert recommendation.sentence == (
        "Native convolution works: MIOpen gives correct results on all float32 problems tested. "
        "Batch norm fails in MIOpen: "
        "a model with batch norm needs PyTorch's own kernels for it (not available in this run). "
        "Tested on MIOpen itself, without PyTorch."
    )
    assert recommendation.configuration.layers == (
        "convolution: MIOpen unchanged, correct",
        "batch norm: fails in MIOpen. Use PyTorch's own kernels (not available in this run): "
        '`rocmprobe.bypass.install(convolution="native", batch_norm="pytorch")`',
    )
    assert recommendation.verify

    # Capi alone with convolution cured and batch norm broken recommends the cure.
    broken = {"/default/convolution/": STATUS, "/batch-norm/": STATUS, "naive-only/convolution/": STATUS}
    recommendation = recommend(by_capi(run(), broken, alone=True))
    assert recommendation.verdict == "native-with-settings"
    assert recommendation.configuration.setting == "gemm-only"
    assert recommendation.configuration.env
    sentence = "MIOpen gives correct results with the setting “gemm-only”. Batch norm fails in MIOpen"
    assert sentence in recommendation.sentence
    assert recommendation.configuration.layers[0].startswith("convolution: MIOpen with MIOPEN_DEBUG_CONV_")


def test_capi_alone_with_everything_broken():
    # Capi alone with every kernel broken blames none that was not asked.
    blocked = {f"/{check}/": {"state": "blocked"} for check in ("gemm", "convolution", "batch-norm")}
    crash = {"state": "crash", "evidence": ("the process ended with SIGABRT",)}
    machine = card("gfx1010", "gfx1100")
    facts = {**machine.facts, "rocblas.targets": Fact(["gfx900", "gfx1010"], "file names")}
    results = run(machine=dataclasses.replace(machine, facts=facts))
    told = recommend(by_capi(results, {**blocked, "/elementwise/": crash}, alone=True))
    assert "float32 convolution was not tested, because a test that it depends on fails" in told.sentence
    assert "The first failing check is elementwise in float32: it crashes." in told.sentence
    assert "batch norm" not in told.sentence
    [away] = told.advice
    assert "`unset HSA_OVERRIDE_GFX_VERSION`" in away["text"]
    assert "rocBLAS holds code for gfx1010 itself" in away["text"]

    # Capi alone with everything broken names what a torch can add.
    results = by_capi(run(everywhere(STATUS)), {"/convolution/": STATUS}, alone=True)
    assert "can be tested only with PyTorch" in recommend(results).sentence
    assert "Install a ROCm build of torch" in findings(results)["native-convolution"].advice

    # Without torch no rung is the torch builds.
    broken = {"state": "error", "evidence": ("hipMemset: hipErrorInvalidDeviceFunction (98)",)}
    for rung, layer in (("elementwise", "hip"), ("gemm", "rocblas")):
        found = findings(by_capi(run(), {f"/{rung}/": broken}, alone=True))
        assert (found[f"rung-{rung}"].cause, found[f"rung-{rung}"].layer) == ("arch-not-in-rocm-lib", layer)


def test_an_isa_that_hip_does_not_confirm():
    def told(arch):
        machine = card()
        facts = {**machine.facts, "capi.devices": Fact([arch], "HIP")}
        return findings(by_capi(run(machine=dataclasses.replace(machine, facts=facts))))

    assert "hip-isa" not in told("gfx1030")
    finding = told("gfx1010:xnack-")["hip-isa"]
    assert (finding.severity, finding.cause) == ("warning", "override-not-effective")
    assert finding.title == "HIP reports cuda:0 as gfx1010, but the other sources on this machine say gfx1030"


def test_a_run_that_was_cut_off_recommends_nothing_that_was_not_asked_whether_it_trains():
    results = by_capi(run(), {"/batch-norm/": STATUS}, alone=True)
    asked = tuple(
        each for each in results.outcomes if (each.setting, each.check) != ("naive-only", "batch-norm")
    )
    whole = dataclasses.replace(results, outcomes=asked)
    assert recommend(whole).configuration.setting == "naive-only"
    stopped = recommend(dataclasses.replace(whole, partial=True))
    assert (stopped.verdict, stopped.configuration.setting) == ("not-judged", None)


def test_batch_norm_alone_is_not_told_as_convolution():
    results = by_capi(run(), {"/default/batch-norm/": STATUS}, alone=True)
    good = {"state": "pass", "cause": None, "evidence": ()}
    mended = tuple(
        dataclasses.replace(each, **good) if each.setting == "gemm-only" else each
        for each in results.outcomes
    )
    told = recommend(dataclasses.replace(results, outcomes=mended))
    assert told.configuration.setting == "gemm-only"
    assert told.sentence.startswith(
        "Native float32 convolution works, but batch norm fails with MIOpen. "
        "MIOpen gives correct results with"
    )


def test_an_operator_that_only_capi_runs_has_a_finding_beside_those_by_torch():
    results = run()
    name = "cuda:0/capi/default/tensor-op/float32"
    broken = dataclasses.replace(
        results.outcomes[0], id=name, driver="capi", check="tensor-op", rung="primitives", state="wrong",
        evidence=("add equal shapes: result: rms_range is 0.5",),
    )  # fmt: skip
    results = dataclasses.replace(results, outcomes=(*results.outcomes, broken))
    finding = findings(results)["tensor-op"]
    assert (finding.severity, finding.layer) == ("warning", "miopen-exec")
    assert finding.title == "MIOpen's operation on two tensors computes wrong numbers"
    assert any(name in line for line in finding.evidence)
    # It changes no recommendation.
    assert recommend(results) == recommend(run())
