"""What `rocmprobe repro` prints, and what it says where it has nothing to print."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample
from runs import cli

from rocmprobe.model.results_file import write_results


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_results(sample.rdna1(), tmp_path / "results.json")
    return tmp_path / "results.json"


def test_the_script_begins_with_the_result_and_the_driver_s_line(results: Path) -> None:
    done = cli("repro", results, f"gemm-only/convolution/{sample.PROBLEMS[1].text}/fwd")
    assert (done.returncode, done.stderr) == (0, "")
    compile(done.stdout, "repro.py", "exec")
    found, _, exit_code, driver, *script = done.stdout.splitlines()
    assert "rocmprobe" not in "".join(script)
    assert sample.STATUS in found
    assert exit_code.startswith("# Exit code: 1 if the failure is reproduced")
    assert driver.startswith("# ")
    assert "MIOPEN_DEBUG_CONV_DIRECT=0" in driver
    assert driver.endswith(
        " MIOpenDriver conv -n 2 -c 64 -H 14 -W 14 -k 64 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1"
        " -m conv -g 1 -F 1 -t 1"
    )


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("gemm-only/convolution", "name one:"),
        ("no such case", "no outcome matches"),
        (f"bypass/convolution/{sample.PROBLEMS[0].text}/fwd", "needs rocmprobe"),
        (f"vendor-off/throughput/{sample.PROBLEMS[0].text}", "no stand-alone script"),
    ],
)
def test_where_there_is_no_script_it_says_why(results: Path, case: str, said: str) -> None:
    done = cli("repro", results, case)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rocmprobe: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_results_that_are_none(tmp_path: Path) -> None:
    done = cli("repro", tmp_path / "none.json", "x")
    assert done.returncode == 2
    assert "none.json" in done.stderr
