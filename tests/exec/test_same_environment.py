"""A program under a setting has the variables that the trials of the setting had."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.backends import BACKENDS
from rocmprobe.engine import launch
from rocmprobe.knowledge.environment import OWN_FOLDERS, environment, removed
from rocmprobe.knowledge.settings import all_settings
from rocmprobe.knowledge.variables import find, variables
from rocmprobe.model.results import Setting

SETTINGS = [setting for setting, _, _ in all_settings()]
TRACE = {name: value for each in BACKENDS.values() for name, value in each.trace_variables.items()}
#: The trial has its own values of these variables.
OWN = {*OWN_FOLDERS, *TRACE}
NAMES = [row.name.replace("*", "1") for row in variables()]
VALUES = st.sampled_from(("0", "1", "2", "FAST_HYBRID", "10.3.0", "gfx1030", "/nowhere", "", "x"))
USERS = ("HTTP_PROXY", "MY_PROGRAM", "SLURM_JOB_ID", "PYTHONHASHSEED")


def read_by_a_library(name: str) -> bool:
    row = find(name)
    return row is not None and row.of not in ("process", "nobody") and row.read != "build"


@given(
    setting=st.sampled_from(SETTINGS),
    owner=st.dictionaries(st.sampled_from((*NAMES, *USERS)), VALUES, max_size=30),
    unset=st.lists(st.sampled_from(NAMES), max_size=3),
)
def test_a_trial_and_a_program_see_the_same_variables_of_libraries(setting, owner, unset):
    names = tuple(name for name in unset if name not in setting.env)
    setting = Setting(**{**vars(setting), "unset": names})
    with tempfile.TemporaryDirectory() as folder:
        trial = launch.environment(setting, Path(folder), Path(folder), TRACE, owner)
    program = environment(setting, owner)
    for name in {*trial, *program}:
        if read_by_a_library(name) and name not in OWN:
            assert trial.get(name) == program.get(name), name
    untouched = {
        name: value
        for name, value in owner.items()
        if not read_by_a_library(name) and name not in (*setting.env, *names)
    }
    assert untouched.items() <= program.items()
    assert not set(names) & {*program, *(set(trial) - OWN)}
    assert set(removed(setting, owner)) == set(owner) - set(program)


@pytest.mark.parametrize(
    ("name", "value"),
    [("MIOPEN_FIND_MODE", "FAST_HYBRID"), ("MIOPEN_OF_NEXT_YEAR", "1"), ("TORCH_BLAS_PREFER_HIPBLASLT", "1")],
)
def test_only_the_owner_s_environment_keeps_what_trials_drop(name, value):
    settings = {setting.name: setting for setting in SETTINGS}
    assert removed(settings["default"], {name: value, "PATH": "/bin"}) == (name,)
    assert environment(settings["as-found"], {name: value}) == {name: value}
    without = Setting("", "", "native", inherit_environment=True, unset=(name,))
    assert environment(without, {name: value, "MIOPEN_LOG_LEVEL": "5"}) == {"MIOPEN_LOG_LEVEL": "5"}


def test_folders_of_the_owner_stay():
    owner = {"MIOPEN_USER_DB_PATH": "/data/db", "TORCH_HOME": "/data", "PYTORCH_ROCM_ARCH": "gfx1010"}
    assert environment(Setting("", "", "native"), owner) == owner
