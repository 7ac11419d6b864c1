"""Which lines of a child's output stand for its failure."""

from __future__ import annotations

import pytest

from rocmprobe.backends.miopen import Miopen
from rocmprobe.run.evidence import evidence_of

#: What MIOpen prints in one try of a kernel that the compiler refuses, with the names of that try.
TRY = """\
MIOpen(HIP): Info [Measure] Db::FindRecord time: 0.0{number}
/tmp/comgr-{name}/input/MIOpenBatchNormFwdTrainSpatial.cl:732:23: error: not a valid operand.
MIOpen(HIP): Error [BuildOcl] comgr status = ERROR (1), source file: MIOpenBatchNormFwdTrainSpatial.cl
MIOpen Error: /src/hipoc_program.cpp:300: Code object build failed. Source: MIOpenBatchNormFwdTrainSpatial.cl
[rocmprobe] miopenBatchNormalizationForwardTraining: miopenStatusUnknownError (7)
"""


def kept(log: str) -> list[str]:
    return evidence_of(log, Miopen().read(log), ())


def test_the_compiler_s_error_comes_first_and_each_line_once() -> None:
    names = ("2f1a", "90cc", "77de")
    lines = kept("".join(TRY.format(name=name, number=number) for number, name in enumerate(names)))
    assert lines[0].startswith("/tmp/comgr-2f1a/input/")
    assert lines[0].endswith("error: not a valid operand.")
    assert lines[1].startswith("MIOpen Error: ")
    assert len(lines) == len(TRY.splitlines())


def test_a_line_for_each_try_leaves_room_for_what_else_went_wrong() -> None:
    again = "MIOpen Error: /MIOpen/src/hipoc/hipoc_program.cpp:257: Cant find file: /tmp/miopen-x-{}/x.cl.o\n"
    log = "".join(again.format(f"{number:04x}") for number in range(40))
    lines = kept(f"{log}sh: 1: /usr/lib/clang-21: not found\n")
    assert lines[0] == "sh: 1: /usr/lib/clang-21: not found"
    assert sum("Cant find file" in line for line in lines) == 1


@pytest.mark.parametrize(
    "said", ["sh: line 1: /opt/clang-21: No such file or directory", "sh: 1: /opt/clang-21: not found"]
)
def test_a_compiler_that_is_not_there_is_told_by_any_shell(said: str) -> None:
    left = "MIOpen Error: /src/hipoc_program.cpp:257: Cant find file: /tmp/miopen-x-aa01/x.cl.o"
    assert kept(f"{left}\n{said}")[:2] == [said, left]


def test_the_frames_of_a_stack_stay_in_their_order() -> None:
    frames = [f'  File "/x.py", line {number} in {name}' for number, name in ((9, "inner"), (3, "outer"))]
    lines = kept("\n".join(("Fatal Python error: Segmentation fault", "Current thread 0x7f:", *frames)))
    assert lines == ["Fatal Python error: Segmentation fault", "Current thread 0x7f:", *frames]
