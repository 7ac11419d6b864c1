"""The same program twice in one log: the last run that failed is explained, and the note says so."""

from __future__ import annotations

import pytest

from rocmprobe.explain.explain import explain
from rocmprobe.explain.log_facts import Facts
from rocmprobe.explain.several_runs import last_failing_run
from rocmprobe.text.log import of_text

DEVICE = "RuntimeError: HIP error: invalid device function"
ROCBLAS = "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek"
PROMPTS = (
    "$ {}", "joe@box:~/work$ {}", "(venv) joe@box:~$ {}", "[joe@box work]$ {}", r"PS C:\Users\joe> {}",
    r"(venv) C:\work>{}", "root@box:/# {}",
)  # fmt: skip


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("again", ["python train.py", "FOO=1 python3 train.py --fp32"])
def test_the_last_failing_run_is_explained(prompt: str, again: str) -> None:
    first = "python train.py" if "python3" not in again else "FOO=2 python3 train.py"
    log = of_text(
        "\n".join((prompt.format(first), "start", DEVICE, "", prompt.format(again), "start", ROCBLAS))
    )
    found = explain(log, Facts())
    assert found.causes[0].cause == explain(of_text(ROCBLAS), Facts()).causes[0].cause
    assert "several runs of python" in found.note
    assert "line 5" in found.note
    assert not any("invalid device function" in said for cause in found.causes for said in cause.evidence)


def test_a_run_that_works_after_one_that_fails_changes_nothing() -> None:
    log = of_text(f"$ python a.py\n{DEVICE}\n$ X=1 python a.py\ndone\n")
    assert last_failing_run(log) == (log, None)


def test_the_same_failure_twice_is_quoted_where_it_stood_last() -> None:
    log = of_text(f"$ python a.py\n{DEVICE}\n$ X=1 python a.py\n{DEVICE}\n")
    assert "line 4: RuntimeError" in explain(log, Facts()).causes[0].evidence[0]


def test_what_other_commands_print_between_runs_stays() -> None:
    log = of_text(
        f"$ python a.py\n{DEVICE}\n$ ls -l /dev/kfd\nls: /dev/kfd: x\n$ X=1 python a.py\n{ROCBLAS}\n"
    )
    kept = [line.text for line in last_failing_run(log).log.lines]
    assert kept == ["$ ls -l /dev/kfd", "ls: /dev/kfd: x", "$ X=1 python a.py", ROCBLAS]


@pytest.mark.parametrize(
    "text",
    [
        f"$ python a.py\n{DEVICE}\n$ python b.py\n{ROCBLAS}\n",
        f"{DEVICE}\n{ROCBLAS}\n",
        f"before:\n{DEVICE}\nafter:\n{ROCBLAS}\n",
        f"$ python\n{DEVICE}\n$ python\n{ROCBLAS}\n",
        f"# 1 works\n{DEVICE}\n# 2 fails\n{ROCBLAS}\n",
    ],
)
def test_what_may_be_one_run_is_explained_whole(text: str) -> None:
    log = of_text(text)
    assert last_failing_run(log) == (log, None)
