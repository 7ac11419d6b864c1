"""What the results recommend holds in the program, or nothing is run."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import sample
from launched import CONVOLVES, executed, profile, program, recommending, refused, told

from rocmprobe.exec.conditions import conditions
from rocmprobe.model.results import BadInput, Configuration, Fact, Finding, Results, Setting

DEFAULT = Setting("default", "", "native")
AS_FOUND = Setting("as-found", "", "native", inherit_environment=True)
BYPASS = Setting("bypass", "", "bypass", bypass=True)
VENDOR_OFF = Setting("vendor-off", "", "vendor-off", vendor_library=False)
BOTH = Setting("bypass+vendor-off", "", "bypass", bypass=True, vendor_library=False)
GEMM_ONLY = Setting(
    "gemm-only", "", "native-with-settings", env={"MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
    torch={"cudnn.benchmark": True},
)  # fmt: skip
EVERYTHING = dataclasses.replace(GEMM_ONLY, vendor_library=False)
FIND = Setting(
    "find-fast", "", "native-with-settings", env={"MIOPEN_FIND_MODE": "2"}, torch={"cudnn.benchmark": True},
    search="find",
)  # fmt: skip
BY_LAYER = dataclasses.replace(
    GEMM_ONLY, name="gemm-only+batch-norm-pytorch+rnn-pytorch", torch={}, pytorch_layers=("batch_norm", "rnn")
)
CPU = Setting("cpu", "", "cpu", device="cpu")
FLOAT64 = Setting("float64", "", "native-with-settings", dtype="float64")
CHANNELS_LAST = Setting("channels-last", "", "native-with-settings", channels_last=True)
OVERRIDE = {"HSA_OVERRIDE_GFX_VERSION": "10.3.0"}


def none() -> Results:
    results = recommending(BYPASS)
    assert results.recommendation is not None
    nothing = dataclasses.replace(results.recommendation, verdict="none", configuration=Configuration())
    return dataclasses.replace(results, recommendation=nothing)


#: Every member of a setting at once.
MIXED = dataclasses.replace(
    EVERYTHING, name="mixed", members=("a", "b"), unset=("MIOPEN_FIND_MODE",), pytorch_layers=("rnn",),
    torch={"cudnn.benchmark": True, "cuda.enable_flash_sdp": False}, bypass=True,
)  # fmt: skip
#: Convolution, batch norm and LSTM, and what a program can see of the conditions that it runs under.
TELLS = f"""
import json, os
{CONVOLVES}
torch.nn.BatchNorm2d(4)(output.detach()).sum().backward()
torch.nn.LSTM(3, 4)(torch.randn(5, 2, 3))
names = ("HSA_OVERRIDE_GFX_VERSION", "MIOPEN_DEBUG_CONV_WINOGRAD", "MIOPEN_FIND_MODE")
seen = {{name.split("_")[-1]: os.environ.get(name) for name in names}}
backends, flash = torch.backends, getattr(torch.backends.cuda, "flash_sdp_enabled", lambda: False)
flags = {{"mkldnn": backends.mkldnn.enabled, "cudnn": backends.cudnn.enabled}}
print(json.dumps({{**seen, **flags, "benchmark": backends.cudnn.benchmark, "flash": flash()}}))
"""
NATIVE_FLAGS = {"mkldnn": True, "cudnn": True, "benchmark": False}
LAYERS = "(MIOPEN_DEBUG_CONV_WINOGRAD=0, batch norm in PyTorch, recurrent layers in PyTorch)"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("setting", "device", "env", "bypass", "seen", "bypassed", "pytorch"),
    [
        (BYPASS, "cpu", OVERRIDE, "auto", {"VERSION": "10.3.0", "WINOGRAD": None, **NATIVE_FLAGS}, True, {}),
        (BOTH, "cpu", OVERRIDE, "never", {"VERSION": "10.3.0", **NATIVE_FLAGS, "mkldnn": False}, False, {}),
        (EVERYTHING, "cuda:0", None, "always",
         {"VERSION": None, "WINOGRAD": "0", "mkldnn": True, "cudnn": False, "benchmark": True}, True, {}),
        (BY_LAYER, "cpu", None, "auto", {"WINOGRAD": "0", "mkldnn": True}, False,
         {"batch_norm": 1, "rnn": 1}),
        (MIXED, "cpu", None, "auto",
         {"MODE": None, "benchmark": True, "flash": False, "mkldnn": False}, True, {"rnn": 1}),
    ],
    ids=["bypass", "vendor-off, bypass refused", "everything, bypass forced", "by layer", "every member"],
)  # fmt: skip
def test_a_setting_holds_in_a_program(
    tmp_path: Path, setting: Setting, device: str, env: dict[str, str] | None, bypass: str,
    seen: dict[str, Any], bypassed: bool, pytorch: dict[str, int],
) -> None:  # fmt: skip
    path = profile(tmp_path, recommending(setting, device, env))
    command = ("--", sys.executable, program(tmp_path, TELLS))
    variables = {"ROCMPROBE_BYPASS_STATUS": "status", "MIOPEN_FIND_MODE": "7"}
    done = executed(tmp_path, "--profile", path, "--bypass", bypass, *command, **variables)
    assert done.returncode == 0, done.stderr
    assert seen.items() <= json.loads(done.stdout).items()
    assert f"the setting {setting.name} of {path}" in done.stderr.splitlines()[0]
    assert setting is not BY_LAYER or LAYERS in done.stderr
    lines = told(tmp_path / "status")
    assert any(line["calls"] for line in lines) is bypassed
    assert [line["pytorch"] for line in lines if line["pytorch"]] == [pytorch] * bool(pytorch)


def test_the_last_complete_run_is_the_default(tmp_path: Path) -> None:
    for name, results in (("latest", sample.rdna1()), ("recommended", recommending(GEMM_ONLY))):
        (tmp_path / "reports" / name).mkdir(parents=True)
        profile(tmp_path / "reports" / name, results)
    done = executed(tmp_path, "--", "sh", "-c", "echo $MIOPEN_DEBUG_CONV_WINOGRAD")
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert done.stderr == (
        "rocmprobe: running under the setting gemm-only of reports/recommended/results.json "
        "(MIOPEN_DEBUG_CONV_WINOGRAD=0, torch.backends.cudnn.benchmark = True)\n"
    )


#: The index of the GPU is known to the run alone.
ALONE = Setting(
    "one-device+rnn-pytorch", "", "native-with-settings", env={"HIP_VISIBLE_DEVICES": "1"},
    one_device=True, members=("one-device", "rnn-pytorch"), pytorch_layers=("rnn",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("results", "printed", "words"),
    [
        pytest.param(
            recommending(CPU, "cuda:0", {}), "-1 -1", "GPUs hidden, so the program runs on the CPU",
            id="a recommendation of the CPU hides the GPUs",
        ),
        pytest.param(
            recommending(GEMM_ONLY, "cuda:1", {"HIP_VISIBLE_DEVICES": "1"}), "1", "HIP_VISIBLE_DEVICES=1",
            id="the card of the results stays visible",
        ),
        pytest.param(recommending(ALONE, "cuda:1"), "1", "", id="a setting hides the other cards"),
    ],
)  # fmt: skip
def test_a_program_sees_the_gpu_of_the_results(
    tmp_path: Path, results: Results, printed: str, words: str
) -> None:
    shows = ("sh", "-c", "echo $HIP_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES")
    done = executed(tmp_path, "--profile", profile(tmp_path, results), "--", *shows)
    assert (done.returncode, done.stdout) == (0, f"{printed}\n")
    assert words in done.stderr


def test_a_setting_that_needs_the_index_of_a_gpu_is_not_combined(tmp_path: Path) -> None:
    path = profile(tmp_path, recommending(ALONE, "cuda:1"))
    with pytest.raises(BadInput, match="had no setting"):
        conditions(path, "auto", "one-device+no-sdma")


#: Results for which nothing is run, and what is said of them.
REFUSED = {
    "none": (none, "no safe configuration was found"),
    "float64": (lambda: recommending(FLOAT64), "the dtype float64"),
    "channels-last": (lambda: recommending(CHANNELS_LAST), "channels-last"),
    "a variable of no setting": (lambda: recommending(BYPASS, env={"LD_PRELOAD": "x.so"}), "LD_PRELOAD"),
    "a list of GPUs that is none": (
        lambda: recommending(BYPASS, env={"HIP_VISIBLE_DEVICES": "1;rm"}), "HIP_VISIBLE_DEVICES"
    ),
    "a flag of no setting": (
        lambda: recommending(dataclasses.replace(BYPASS, torch={"cuda.enabled": False})), "cuda.enabled"
    ),
    "a layer of no setting": (
        lambda: recommending(dataclasses.replace(BY_LAYER, pytorch_layers=("softmax",))), "softmax"
    ),
    "a setting that is not there": (
        lambda: dataclasses.replace(recommending(BYPASS), settings=()), "had no setting 'bypass'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_hold_is_refused(tmp_path: Path, what: str) -> None:
    make, words = REFUSED[what]
    path = profile(tmp_path, make())
    with pytest.raises(BadInput, match=words) as error:
        conditions(path, "auto")
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        pytest.param("{", ("--profile", "results.json"), "not JSON", id="broken results"),
        pytest.param(None, ("--profile", "results.json"), "cannot be read", id="no results"),
        pytest.param(None, (), "there is no complete run", id="no run"),
        pytest.param(None, ("--bypass", "never"), "there is no complete run", id="no bypass and no run"),
        pytest.param(None, ("--setting", "no-sdna"), "did you mean no-sdma?", id="an unknown setting"),
    ],
)
def test_nothing_is_run_and_one_line_says_why(
    tmp_path: Path, content: str | None, options: tuple[str, ...], words: str
) -> None:
    if content:
        (tmp_path / "results.json").write_text(content)
    assert words in refused(tmp_path, *options, "--", "touch", "ran")
    assert not (tmp_path / "ran").exists()


def test_flags_of_another_torch_end_the_program_at_its_import(tmp_path: Path) -> None:
    """Only the program knows which torch it has."""
    torch = program(tmp_path, "__version__ = '2.4.0'", "torch.py")
    path = profile(tmp_path, recommending(FIND, "cuda:0"))
    text = f"import sys; sys.path.insert(0, {str(torch.parent)!r})\nimport torch\nopen('ran', 'w')"
    done = executed(tmp_path, "--profile", path, "--", sys.executable, "-c", text)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the setting's flags were tested with torch 1.13.1+rocm5.2" in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 2
    assert not (tmp_path / "ran").exists()


def test_always_adds_the_bypass_to_whatever_is_recommended(tmp_path: Path) -> None:
    for results, off in ((none(), ()), (recommending(VENDOR_OFF, "cuda:0"), ("cuda",))):
        under = conditions(profile(tmp_path, results), "always")
        assert (set(under.bypass), under.vendor_off) == ({"cuda", "cpu"}, off)
    assert conditions(profile(tmp_path, recommending(BY_LAYER)), "always").bypass == ("cuda", "cpu")
    with pytest.raises(BadInput, match="results"):
        conditions(tmp_path / "none.json", "always")


def test_a_setting_needs_no_run(tmp_path: Path) -> None:
    text = "import os; print(os.environ['HSA_ENABLE_SDMA'], os.environ['MIOPEN_FIND_MODE'])"
    done = executed(tmp_path, "--setting", "no-sdma", "--", sys.executable, "-c", text, MIOPEN_FIND_MODE="2")
    assert (done.returncode, done.stdout) == (0, "0 2\n")
    assert "no-sdma, which no run has tested here" in done.stderr


def test_the_bypass_is_on_the_device_of_the_results(tmp_path: Path) -> None:
    for device in ("cpu", "cuda"):
        assert conditions(profile(tmp_path, recommending(BYPASS, f"{device}:0")), "auto").bypass == (device,)
    simulated = conditions(profile(tmp_path, sample.rdna1()), "auto", simulated=True)
    assert set(simulated.bypass) == {"cpu", "cuda"}
    assert simulated.words.endswith("for the simulated machine rdna1-rocm52-conv-dead")


def test_results_of_a_simulated_machine_are_refused(tmp_path: Path) -> None:
    path = profile(tmp_path, sample.rdna1())
    for bypass in ("auto", "always"):
        with pytest.raises(BadInput, match=r"simulated machine 'rdna1-rocm52-conv-dead'.*add --simulated"):
            conditions(path, bypass)
    command = ["--", "sh", "-c", "echo $HSA_OVERRIDE_GFX_VERSION"]
    done = executed(tmp_path, "--profile", path, "--simulated", *command)
    assert (done.returncode, done.stdout) == (0, "10.3.0\n"), done.stderr


def test_another_setting_of_the_results_can_be_named(tmp_path: Path) -> None:
    results = dataclasses.replace(recommending(BYPASS, "cuda:0"), settings=(BYPASS, VENDOR_OFF, GEMM_ONLY))
    path = profile(tmp_path, results)
    under = conditions(path, "auto", "vendor-off")
    assert (under.bypass, under.vendor_off) == ((), ("cuda",))
    assert conditions(path, "auto", "gemm-only").environment({})["MIOPEN_DEBUG_CONV_WINOGRAD"] == "0"
    assert refused(tmp_path, "--profile", path, "--setting", "vendor_off", "--", "true") == (
        f"rocmprobe: --setting: the run of {path} had no setting 'vendor_off'; similar: 'vendor-off'\n"
    )


@pytest.mark.thorough
def test_a_program_gets_clean_databases_where_the_users_own_fail(tmp_path: Path) -> None:
    healthy = recommending(DEFAULT, "cuda:0", OVERRIDE)
    finding = Finding("as-found", "error", "miopen-db-unusable", "user-env", "2 question(s) fail")
    broken = dataclasses.replace(healthy, findings=(finding,), settings=(DEFAULT, AS_FOUND, VENDOR_OFF))
    command = ["--", "sh", "-c", "echo $MIOPEN_USER_DB_PATH; touch $MIOPEN_CUSTOM_CACHE_DIR/made"]
    own = {"MIOPEN_USER_DB_PATH": "/broken", "MIOPEN_CUSTOM_CACHE_DIR": str(tmp_path)}
    own.update(XDG_CACHE_HOME=str(tmp_path / "cache"), ROCMPROBE_EXEC_CACHES="")

    done = executed(tmp_path, "--profile", profile(tmp_path, broken), *command, **own)
    assert done.returncode == 0, done.stderr
    used = Path(done.stdout.strip())
    assert used.is_dir()
    assert (tmp_path / "cache" / "rocmprobe" / "exec") in used.parents
    assert not (tmp_path / "made").exists()
    assert "clean databases and caches in" in done.stderr
    later = dataclasses.replace(broken, started="2027-01-01T00:00:00+00:00")
    again = executed(tmp_path, "--profile", profile(tmp_path, later), *command, **own)
    assert Path(again.stdout.strip()) == used
    facts = {**broken.machine.facts, "torch.version": Fact("2.13.0", "torch/version.py")}
    newer = dataclasses.replace(broken, machine=dataclasses.replace(broken.machine, facts=facts))
    again = executed(tmp_path, "--profile", profile(tmp_path, newer), *command, **own)
    assert Path(again.stdout.strip()).parent != used.parent

    under = conditions(profile(tmp_path, broken), "auto", "as-found")
    assert "MIOPEN_USER_DB_PATH" not in under.variables
    assert "clean databases" not in conditions(profile(tmp_path, healthy), "auto").words

    (tmp_path / "file").touch()
    own["XDG_CACHE_HOME"] = str(tmp_path / "file")
    done = executed(tmp_path, "--profile", profile(tmp_path, broken), *command, **own)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "set ROCMPROBE_EXEC_CACHES to a folder that you can write to" in done.stderr


def test_a_run_is_not_asked_under_a_configuration(tmp_path: Path) -> None:
    done = executed(tmp_path, "--bypass", "always", "--", sys.executable, "-m", "rocmprobe", "run")
    assert done.returncode == 2
    assert "under `rocmprobe exec`" in done.stderr
    assert not (tmp_path / "reports").exists()


def test_what_a_file_says_cannot_break_the_line(tmp_path: Path) -> None:
    results = recommending(dataclasses.replace(GEMM_ONLY, name="two\nlines\x1b[31m"))
    done = executed(tmp_path, "--profile", profile(tmp_path, results), "--", "true")
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr
    inside = json.loads(conditions(profile(tmp_path, results), "auto").environment({})["ROCMPROBE_EXEC"])
    assert inside["flags"] == {"cudnn.benchmark": True}


def test_variables_that_the_trials_ran_without_are_removed_and_told(tmp_path: Path) -> None:
    results = profile(tmp_path, recommending(DEFAULT, "cuda:0", {}))
    shows = ("sh", "-c", "echo $MIOPEN_FIND_MODE $MIOPEN_DEVICE_ARCH $HSA_OVERRIDE_GFX_VERSION $MINE")
    owner = {
        "MIOPEN_FIND_MODE": "FAST_HYBRID", "MIOPEN_DEVICE_ARCH": "gfx1030", "MINE": "stays",
        "HSA_OVERRIDE_GFX_VERSION": "10.3.0",
    }  # fmt: skip
    done = executed(tmp_path, "--profile", results, "--", *shows, **owner)
    assert (done.returncode, done.stdout) == (0, "10.3.0 stays\n")
    removed = [line for line in done.stderr.splitlines() if "trials ran without" in line]
    assert len(removed) == 1
    assert "MIOPEN_FIND_MODE" in removed[0]
    assert "MIOPEN_DEVICE_ARCH" in removed[0]
    for setting, kept in (
        (AS_FOUND, owner.keys()),
        (dataclasses.replace(AS_FOUND, unset=("MIOPEN_FIND_MODE",)), owner.keys() - {"MIOPEN_FIND_MODE"}),
        (dataclasses.replace(DEFAULT, unset=("HSA_OVERRIDE_GFX_VERSION",)), {"MINE"}),
    ):
        under = conditions(profile(tmp_path, recommending(setting, "cuda:0", {})), "auto")
        assert owner.keys() & under.environment(owner).keys() == kept


def test_a_foreign_variable_to_unset_is_refused(tmp_path: Path) -> None:
    hostile = dataclasses.replace(DEFAULT, unset=("PATH",))
    said = refused(tmp_path, "--profile", profile(tmp_path, recommending(hostile)), "--", "true")
    assert "'PATH' is not a variable of any setting" in said


def test_settings_are_combined_by_name(tmp_path: Path) -> None:
    targets = [{"device": "cuda:0", "backend": "miopen"}]
    results = dataclasses.replace(recommending(GEMM_ONLY, "cuda:0"), options={"targets": targets})
    path = profile(tmp_path, results)
    under = conditions(path, "auto", "no-sdma+gemm-only+rnn-pytorch")
    seen = under.environment({"PATH": "/bin", "HSA_ENABLE_SDMA": "1"})
    assert (seen["HSA_ENABLE_SDMA"], seen["MIOPEN_DEBUG_CONV_WINOGRAD"], seen["PATH"]) == ("0", "0", "/bin")
    inside = json.loads(seen["ROCMPROBE_EXEC"])
    # The variables and flags of a setting of the run are those of the run.
    assert inside["flags"] == {"cudnn.benchmark": True}
    assert inside["pytorch_layers"] == {"rnn": ["cuda"]}
    for wrong in ("no-sdma+no-such", "no-faulty-solvers+no-sdma"):
        with pytest.raises(BadInput, match="had no setting"):
            conditions(path, "auto", wrong)
    with pytest.raises(BadInput, match="exclude each other"):
        conditions(path, "auto", "no-override+override-gfx1030")
