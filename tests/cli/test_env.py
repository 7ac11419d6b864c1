"""What `rocmprobe env` gives a shell."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import sample
from runs import cli

from rocmprobe.model.results import Configuration, Finding, Recommendation, Setting
from rocmprobe.model.results_file import write_results


def written(folder: Path, **changes: object) -> Path:
    path = folder / "results.json"
    write_results(dataclasses.replace(sample.rdna1(), **changes), path)
    return path


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("sh", "export HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("fish", "set -gx HSA_OVERRIDE_GFX_VERSION 10.3.0"),
        ("powershell", "$env:HSA_OVERRIDE_GFX_VERSION = '10.3.0'"),
        ("dotenv", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("json", '"HSA_OVERRIDE_GFX_VERSION": "10.3.0"'),
    ],
)
def test_variables_go_to_stdout_and_all_else_to_stderr(tmp_path: Path, shell: str, line: str) -> None:
    done = cli("env", written(tmp_path), "--simulated", "--shell", shell)
    assert done.returncode == 0
    assert line in done.stdout
    assert "rocmprobe.bypass.install()" in done.stderr
    assert "simulated" in done.stderr
    assert "rocmprobe" not in done.stdout


def test_a_variable_that_no_cache_stores_comes_with_new_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch._inductor sets it when another test imports it, and a folder of the user's is kept.
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    without = Setting("no-buffers", "", "native-with-settings", env={"AMDGCN_USE_BUFFER_OPS": "0"})
    results = written(tmp_path, settings=(without,))
    arguments = ("env", results, "--simulated", "--setting", "no-buffers")
    done = cli(*arguments, env={"ROCMPROBE_EXEC_CACHES": str(tmp_path / "caches")})
    assert done.returncode == 0, done.stderr
    lines = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert lines["export AMDGCN_USE_BUFFER_OPS"] == "0"
    folders = [Path(lines[f"export {name}"]) for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")]
    assert folders[0].parent == folders[1].parent
    assert folders[0].parent.parent == tmp_path / "caches"

    done = cli(*arguments, env={"ROCMPROBE_EXEC_CACHES": "0"})
    assert "CACHE_DIR" not in done.stdout
    assert "set TRITON_CACHE_DIR and TORCHINDUCTOR_CACHE_DIR to new folders" in done.stderr


def recommended(configuration: Configuration, **changes: object) -> Recommendation:
    """Return the sample's recommendation with another configuration."""
    recommendation = sample.rdna1().recommendation
    assert recommendation is not None
    return dataclasses.replace(recommendation, configuration=configuration, **changes)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        pytest.param({}, 2, "add --simulated", id="results of a simulated machine"),
        pytest.param(
            {"simulated": None, "recommendation": recommended(Configuration(), verdict="none")}, 1,
            "no configuration", id="no configuration",
        ),
        pytest.param(
            {"simulated": None, "recommendation": recommended(Configuration("bypass", {"A B;rm": "x"}))}, 2,
            "not the name of a variable", id="a name that is no variable's",
        ),
    ],
)  # fmt: skip
def test_what_gives_no_variables_is_one_line(
    tmp_path: Path, changes: dict[str, object], code: int, words: str
) -> None:
    done = cli("env", written(tmp_path, **changes))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert words in done.stderr


def test_layers_that_variables_cannot_send_are_a_line_for_the_program(tmp_path: Path) -> None:
    configuration = Configuration(
        "no-winograd+batch-norm-pytorch", {"MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
        'import rocmprobe.bypass\nrocmprobe.bypass.install(convolution="native", batch_norm="pytorch")',
    )  # fmt: skip
    done = cli("env", written(tmp_path, recommendation=recommended(configuration)), "--simulated")
    assert (done.returncode, done.stdout) == (0, "export MIOPEN_DEBUG_CONV_WINOGRAD=0\n")
    assert done.stderr.splitlines()[-1] == configuration.code.splitlines()[-1]


def test_another_setting_of_the_results_can_be_named(tmp_path: Path) -> None:
    targets = [{"device": "cuda:0", "backend": "miopen"}]
    path = written(tmp_path, simulated=None, options={"targets": targets})
    done = cli("env", path, "--setting", "gemm-only")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "export HSA_OVERRIDE_GFX_VERSION=10.3.0\nexport MIOPEN_DEBUG_CONV_DIRECT=0\n"
        "export MIOPEN_DEBUG_CONV_WINOGRAD=0\n"
    )
    done = cli("env", path, "--setting", "gemm_only")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"rocmprobe: --setting: the run of {path} had no setting 'gemm_only'; similar: 'gemm-only'\n"
    )


def test_the_last_complete_run_is_the_default(tmp_path: Path) -> None:
    missing = cli("env", cwd=tmp_path)
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    assert "start `rocmprobe run`" in missing.stderr
    for name, changes in (("latest", {}), ("recommended", {"simulated": None})):
        (tmp_path / "reports" / name).mkdir(parents=True)
        written(tmp_path / "reports" / name, **changes)
    done = cli("env", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "simulated" not in done.stderr


def test_databases_of_the_user_that_fail_are_named(tmp_path: Path) -> None:
    finding = Finding("as-found", "error", "miopen-db-unusable", "user-env", "2 question(s) fail")
    path = written(tmp_path, simulated=None, findings=(finding,))
    assert "your own databases and caches fail" in cli("env", path).stderr
    assert cli("env", path, "--setting", "vendor-off").stderr.splitlines()[0].endswith("these lines:")


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("sh", "unset MIOPEN_FIND_MODE\nunset HSA_ENABLE_SDMA\nexport MIOPEN_DEBUG_CONV_WINOGRAD=0\n"),
        ("fish", "set -e MIOPEN_FIND_MODE\nset -e HSA_ENABLE_SDMA\nset -gx MIOPEN_DEBUG_CONV_WINOGRAD 0\n"),
        (
            "powershell",
            "Remove-Item Env:MIOPEN_FIND_MODE -ErrorAction SilentlyContinue\n"
            "Remove-Item Env:HSA_ENABLE_SDMA -ErrorAction SilentlyContinue\n"
            "$env:MIOPEN_DEBUG_CONV_WINOGRAD = '0'\n",
        ),
        ("dotenv", "MIOPEN_DEBUG_CONV_WINOGRAD=0\n"),
        (
            "json",
            '{\n "MIOPEN_FIND_MODE": null,\n "HSA_ENABLE_SDMA": null,\n'
            ' "MIOPEN_DEBUG_CONV_WINOGRAD": "0"\n}\n',
        ),
    ],
)
def test_variables_that_must_not_be_set_are_unset(tmp_path: Path, shell: str, expected: str) -> None:
    setting = Setting(
        "mine", "", "native-with-settings", env={"MIOPEN_DEBUG_CONV_WINOGRAD": "0"},
        unset=("HSA_ENABLE_SDMA",),
    )  # fmt: skip
    configuration = Configuration("mine", setting.env, unset=("MIOPEN_FIND_MODE", "HSA_ENABLE_SDMA"))
    path = written(tmp_path, simulated=None, settings=(setting,), recommendation=recommended(configuration))
    done = cli("env", path, "--shell", shell)
    assert (done.returncode, done.stdout) == (0, expected)
    assert ("unset them yourself: MIOPEN_FIND_MODE, HSA_ENABLE_SDMA" in done.stderr) is (shell == "dotenv")


def test_variables_of_the_present_shell_are_unset_if_trials_ran_without(tmp_path: Path) -> None:
    path = written(tmp_path, simulated=None, settings=(Setting("default", "", "native"),))
    here = {"MIOPEN_FIND_MODE": "FAST_HYBRID", "MIOPEN_USER_DB_PATH": "/db", "MINE": "1"}
    done = cli("env", path, "--setting", "default", env=here)
    assert "unset MIOPEN_FIND_MODE\n" in done.stdout
    assert "DB_PATH" not in done.stdout
    assert "MINE" not in done.stdout
