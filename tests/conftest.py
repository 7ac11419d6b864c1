"""Puts this folder on sys.path, for the helpers that tests of several rooms share."""

import os
import shutil
import signal

import pytest
from hypothesis import settings
from tiers import OLD_TORCH, THOROUGH, examples

from rocmprobe.checks.tools.failures import NotApplicable

# A child inherits that a signal is ignored, as it is where pytest runs under nohup or in the background of a
# script, and is not ended by it then. It does not inherit a handler; this one lets pytest go on ignoring it.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

# Threads of PyTorch spin while they wait for each other: with as many of them in each worker as there are
# cores, small convolutions take ten times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without its bytecode each of the many processes of the tests would compile rocmprobe for itself.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Every time the same algorithms of the bypass, and nothing in the user's plan file; the tests of measuring
# say otherwise for themselves.
os.environ["ROCMPROBE_BYPASS_MEASURE"] = "0"
os.environ["ROCMPROBE_BYPASS_PLANS"] = "0"

# How long an example takes is the machine's affair.
settings.register_profile("tiers", deadline=None, max_examples=examples(100))
settings.load_profile("tiers")

# PyTorch's samples take seconds to import in each worker, and all their tests are thorough.
collect_ignore = [] if THOROUGH else ["bypass/test_opinfo.py"]

#: Seconds after which a test has failed: several times what the longest takes on a busy machine.
_LONGEST = 300


def pytest_make_parametrize_id(val):
    """Name a row of a table by the names of its values. Long values are shortened."""
    name = getattr(val, "name", None)
    if isinstance(name, str):
        return name
    text = repr(val) if isinstance(val, (str, bytes)) else ""
    return f"{text[:60]}..." if len(text) > 60 else None


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call():
    """Skip a test of a kernel that an old torch lacks."""
    outcome = yield
    if OLD_TORCH and outcome.excinfo and issubclass(outcome.excinfo[0], NotApplicable):
        outcome.force_exception(pytest.skip.Exception(str(outcome.excinfo[1])))


def pytest_collection_modifyitems(items):
    """Give each test its limit here and not in pyproject.toml, which would limit the suites as well."""
    for item in items:
        item.add_marker(pytest.mark.timeout(_LONGEST, method="thread"))


@pytest.fixture(scope="session", autouse=True)
def own_folders(tmp_path_factory):
    """Keep the runs of one test process from waiting for devices that those of another have.

    The caches of programs under exec stay out of the user's home.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        patched.setenv("ROCMPROBE_EXEC_CACHES", str(tmp_path_factory.mktemp("exec-caches")))
        yield


@pytest.fixture(scope="session")
def chromium():
    """The one browser of a worker: a second one cannot be started beside it."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine")
    arguments = [
        "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
    ]  # fmt: skip
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=arguments)
        yield browser
        browser.close()
