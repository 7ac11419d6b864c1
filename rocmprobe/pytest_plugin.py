"""The pytest plugin, which runs each case of a suite as a test item.

The main process (xdist's controller) begins the run, and writes results and report at the end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import xml.etree.ElementTree as ET
from collections.abc import Generator, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Optional

import pytest

from rocmprobe.checks import CHECKS
from rocmprobe.checks.tools.case import Case
from rocmprobe.engine import run
from rocmprobe.engine.journal import Answer, CannotWrite, End, RunJournal
from rocmprobe.engine.plan import Request, cases, in_order
from rocmprobe.engine.sampling import Sampler
from rocmprobe.engine.session import Session
from rocmprobe.engine.setup import setup_of
from rocmprobe.judge.judgement import Expectations
from rocmprobe.judge.summary import Summary
from rocmprobe.lifetime import die_with_parent
from rocmprobe.model.exit_codes import NOTHING, USAGE
from rocmprobe.model.options import RunOptions
from rocmprobe.model.problems import LEVELS
from rocmprobe.model.results import BadInput, NothingToTest, Outcome
from rocmprobe.process.leftovers import remove_leftovers
from rocmprobe.process.signals import delayed_signals, install_handlers
from rocmprobe.text.plain_text import one_line
from rocmprobe.text.redact import redacted, redacted_text

_JOURNAL = pytest.StashKey[RunJournal]()
_SESSION = pytest.StashKey[Session]()
#: The requests of all suites.
_REQUESTS = pytest.StashKey[list[Request]]()
_EXPECTATIONS = pytest.StashKey[Expectations]()
_OUTCOME = pytest.StashKey[Outcome]()
#: Reason why the journal cannot be written any more.
_FULL = pytest.StashKey[str]()
#: Summary of the finished run, for a caller that runs pytest in the same process.
SUMMARY = pytest.StashKey[Summary]()
#: Fields of an outcome that become columns of pytest-html's table.
_HTML_COLUMNS = ("state", "setting", "failure")


def suites_folder() -> Path:
    """Return the folder of the test suites, in the installed package or in a checkout."""
    package = Path(__file__).parent
    inside = package / "suites"
    return inside if inside.is_dir() else package.parent / "suites"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rocmprobe", "rocmprobe: tests of this machine (suites/)")
    add = group.addoption
    add("--rocmprobe-device", default="auto", metavar="DEVICE", help="auto, cpu, cuda:N or all")
    add("--rocmprobe-level", default="quick", choices=LEVELS, help="how much to test")
    add(
        "--rocmprobe-purpose",
        default="training",
        choices=("training", "inference"),
        help="which directions count",
    )
    add("--rocmprobe-settings", default="default", metavar="SETTINGS", help="default, all, or NAME,..")
    add(
        "--rocmprobe-problem",
        action="append",
        default=[],
        metavar="TEXT",
        help="test this problem instead",
    )
    add("--rocmprobe-simulate", metavar="MACHINE", help="a simulated machine's name, or its TOML file")
    add("--rocmprobe-out", type=Path, metavar="DIR", help="folder of the run (default: reports/<time>-<gpu>)")
    add(
        "--rocmprobe-baseline",
        type=Path,
        metavar="FILE",
        help="results.json of a run to compare this one with",
    )
    add("--rocmprobe-run", type=Path, metavar="DIR", help="resume the run in DIR")


def _about_suites(config: pytest.Config) -> bool:
    suites = suites_folder().resolve()
    named = [Path(str(argument).partition("::")[0]).resolve() for argument in config.args]
    return any(path == suites or suites in path.parents for path in named)


def _on_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "checks(requests): tests of the device, one item for each case of the requests"
    )
    if not _about_suites(config):
        return
    option = config.option
    if _on_worker(config):
        # Without this call, an xdist worker would run for seconds after the death of the main process.
        die_with_parent()
        config.stash[_JOURNAL] = RunJournal(Path(config.workerinput["rocmprobe_run"]))  # type: ignore[attr-defined]
        return
    install_handlers()
    if option.rocmprobe_run is None:
        try:
            from rocmprobe.process.limits import check_limits  # Windows has no limits.

            check_limits()
            remove_leftovers()
            option.rocmprobe_run = run.begin(
                _options(config), option.rocmprobe_out, former=option.rocmprobe_baseline
            )
        except (BadInput, NothingToTest) as error:
            pytest.exit(str(error), USAGE if isinstance(error, BadInput) else NOTHING)
    journal = config.stash[_JOURNAL] = RunJournal(option.rocmprobe_run)
    config.pluginmanager.register(_XdistWorkers(option.rocmprobe_run))
    config.pluginmanager.register(_HtmlColumns())
    sampler = run.sampler(journal)
    if sampler:
        config.pluginmanager.register(_Sampling(sampler))
    # With xdist, keep the order of items: cases on which other cases depend must run first.
    option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that sends all items of a device to one xdist worker."""
    if _JOURNAL not in config.stash:
        return None
    from xdist.scheduler import LoadScopeScheduling

    # Do not use xdist's ``loadgroup``, which changes the ids of items. pytest 9.2 no longer supports such
    # changes.
    class ByDevice(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("[")[2].partition("/")[0] or nodeid

    return ByDevice(config, log)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> Optional[int]:
    """Return the number of workers for ``-n auto``: one per device."""
    if not _about_suites(config):
        return None
    return run.workers(config.option.rocmprobe_run) if config.option.rocmprobe_run else 1


class _XdistWorkers:
    def __init__(self, run: Path) -> None:
        self._run = run
        self._pids: list[int] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["rocmprobe_run"] = str(self._run)
        self._pids.append(node.gateway._rinfo().pid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        """Redact the path of a worker's Python, which pytest prints."""
        if _redacts(node.config):
            node.workerinfo["executable"] = redacted_text(node.workerinfo["executable"])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Store the error if the worker could not write the journal."""
        full = getattr(node, "workeroutput", {}).get("rocmprobe_full")
        if full:
            node.config.stash[_FULL] = full

    def pytest_keyboard_interrupt(self) -> None:
        """End the xdist workers at once, without waiting for the running cases."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


class _HtmlColumns:
    """Columns of pytest-html's table, for ``pytest suites/ --html=FILE``."""

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        cells[1:1] = [f"<th>{name.capitalize()}</th>" for name in _HTML_COLUMNS]

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_html_results_table_row(self, report: Any, cells: list[str]) -> None:
        outcome = dict(getattr(report, "user_properties", ())).get("rocmprobe", {})
        cells[1:1] = [f"<td>{escape(one_line(outcome.get(name) or ''))}</td>" for name in _HTML_COLUMNS]


class _Sampling:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def pytest_sessionstart(self) -> None:
        self._sampler.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._sampler.stop()


def _options(config: pytest.Config) -> RunOptions:
    option = config.option
    return RunOptions(
        option.rocmprobe_device, option.rocmprobe_level, option.rocmprobe_purpose, option.rocmprobe_settings,
        tuple(option.rocmprobe_problem), simulate=option.rocmprobe_simulate,
    )  # fmt: skip


def _new_session(journal: RunJournal) -> Session:
    return Session(setup_of(journal.run, journal.path.parent), journal)


def _session(config: pytest.Config) -> Session:
    if _SESSION not in config.stash:
        config.stash[_SESSION] = _new_session(config.stash[_JOURNAL])
    return config.stash[_SESSION]


def _expectations(config: pytest.Config) -> Expectations:
    if _EXPECTATIONS not in config.stash:
        journal = config.stash[_JOURNAL]
        config.stash[_EXPECTATIONS] = Expectations(journal.run.machine, journal.state.baseline)
    return config.stash[_EXPECTATIONS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test marked with ``checks`` with the selected cases of its requests."""
    marker = metafunc.definition.get_closest_marker("checks")
    if marker is None or _JOURNAL not in metafunc.config.stash:
        return
    requests: Sequence[Request] = marker.args[0]
    metafunc.config.stash.setdefault(_REQUESTS, []).extend(requests)
    setup = _session(metafunc.config).setup
    # pytest would add numbers to the ids of a case that a suite requests twice.
    selected = {
        case.id: case
        for request in requests
        for target in setup.targets
        for case in cases(request, target, setup.settings[target.device], setup.options)
        if setup.options.selects(case.check, case.id)
    }
    metafunc.parametrize("case", list(selected.values()), ids=list(selected))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _JOURNAL not in config.stash:
        return
    asked: dict[str, Case] = {}
    kept = []
    for item in items:
        case = _case(item)
        # Remove duplicates, because two suites can request the same case. Also remove checks without a case.
        empty = case is None and item.get_closest_marker("checks") is not None
        if empty or (case and case.id in asked):
            continue
        kept.append(item)
        if case:
            asked[case.id] = case
    position = {case.id: place for place, case in enumerate(in_order(tuple(asked.values())))}

    def order(item: pytest.Item) -> int:
        case = _case(item)
        return position[case.id] if case else -1

    items[:] = sorted(kept, key=order)


class CaseItem(pytest.Item):
    """A case that a ladder added while the run goes on."""

    def __init__(self, *, case: Case, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.case = case

    def runtest(self) -> None:
        assert_outcome(_settled(self, self.case))

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.case.id


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> Optional[bool]:
    """Run the cases of the ladders first, then the first answer, the cases of the stacks, and the others.

    pytest's own loop cannot run items that are not known when it begins.
    """
    config = session.config
    over = session.testsfailed or config.option.collectonly or not session.items
    if _JOURNAL not in config.stash or over:
        return None
    if getattr(config.option, "numprocesses", None) or _on_worker(config):
        return None
    waiting = {case.id if case else item.nodeid: item for item in session.items for case in [_case(item)]}
    for item in _in_turn(session, waiting):
        config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True


def _in_turn(session: pytest.Session, waiting: dict[str, pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the items of the run. An item that is yielded is removed from ``waiting``."""
    config, own = session.config, _session(session.config)

    def item(case: Case) -> pytest.Item:
        return waiting.pop(case.id, None) or CaseItem.from_parent(
            session, name=f"ladder[{case.id}]", case=case
        )

    requests = config.stash.get(_REQUESTS, [])
    with _ended_when_full(config):
        for case in own.climbing(requests, lambda: _write_first_answer(config)):
            yield item(case)
    while waiting:
        yield waiting.pop(next(iter(waiting)))


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    if _JOURNAL not in config.stash or getattr(config.option, "numprocesses", None):
        return
    planned = [case for case in map(_case, session.items) if case is not None]
    worker = getattr(config, "workerinput", None)
    with _ended_when_full(config):
        _session(config).plan(planned, record=worker is None or worker["workerid"] == "gw0")


@contextlib.contextmanager
def _noted_when_full(config: pytest.Config) -> Iterator[None]:
    """Run the block. If the block cannot write the journal, store the error message."""
    try:
        yield
    except CannotWrite as error:
        config.stash[_FULL] = str(error.strerror)
        if _on_worker(config):
            config.workeroutput["rocmprobe_full"] = str(error.strerror)  # type: ignore[attr-defined]


@contextlib.contextmanager
def _ended_when_full(config: pytest.Config) -> Iterator[None]:
    """Run the block. If the block cannot write the journal, end the run."""
    with _noted_when_full(config):
        yield
        return
    # Later outcomes would be lost.
    pytest.exit("the journal cannot be written")


def _write_first_answer(config: pytest.Config) -> None:
    """Write the first report and record its recommendation, for the progress output."""
    from rocmprobe.report.write import write_first_report

    journal = config.stash[_JOURNAL]
    if _on_worker(config):
        # The other workers' outcomes are in the file only.
        journal = RunJournal(journal.path.parent)
    with _noted_when_full(config):
        results = write_first_report(journal)
        if results.recommendation and results.recommendation.sentence != journal.state.answer:
            journal.append(Answer(results.recommendation.sentence))


def _case(item: pytest.Item) -> Optional[Case]:
    if isinstance(item, CaseItem):
        return item.case
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return case if isinstance(case, Case) else None


@pytest.fixture
def outcome(case: Case, request: pytest.FixtureRequest) -> Outcome:
    """Return the outcome of this item's case. Raise RuntimeError if rocmprobe itself failed."""
    return _settled(request.node, case)


def _settled(item: pytest.Item, case: Case) -> Outcome:
    """Return the outcome of the item's case, as the item reports it."""
    config = item.config
    with _ended_when_full(config):
        own = _session(config)
        if _on_worker(config):
            # xdist decides which items a worker runs, so the ladder has no items of its own there.
            requests = config.stash.get(_REQUESTS, [])
            own.run_ladder(case.device, requests, lambda: _write_first_answer(config))
        settled = own.outcome(case)
    outcome = item.stash[_OUTCOME] = _expectations(item.config).marked(settled)
    item.user_properties.append(("rocmprobe", {name: getattr(outcome, name) for name in _HTML_COLUMNS}))
    if outcome.state == "probe-error":
        raise RuntimeError("\n".join(outcome.evidence))
    return outcome


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Report an unexpected pass as xpass."""
    report: Any = yield
    outcome = item.stash.get(_OUTCOME, None)
    if outcome and outcome.expected and outcome.state == "xpass" and report.when == "call" and report.passed:
        report.wasxfail = f"reason: {outcome.expected.reason}"
    return report


def assert_outcome(outcome: Outcome) -> None:
    """Pass, fail or skip the test, according to the outcome's state."""
    __tracebackhide__ = True
    known = [f"expected: {outcome.expected.reason}"] if outcome.expected else []
    text = "\n".join((f"{outcome.state}: {CHECKS[outcome.check].question}", *known, *outcome.evidence))
    if outcome.state == "xfail":
        pytest.xfail(text)
    if outcome.fails:
        pytest.fail(text, pytrace=False)
    if not outcome.works:
        pytest.skip(text)


def _redacts(config: pytest.Config) -> bool:
    journal = config.stash.get(_JOURNAL, None)
    return journal.run.options.redact if journal else _about_suites(config)


@pytest.hookimpl(optionalhook=True, trylast=True)
def pytest_metadata(metadata: dict[str, Any], config: pytest.Config) -> None:
    """Redact what pytest-metadata has collected about the machine and the CI server."""
    if _redacts(config):
        for name, value in metadata.items():
            clean = redacted(value)
            # Escape the text, because pytest-html inserts it as HTML.
            metadata[name] = escape(clean) if clean != value and isinstance(clean, str) else clean


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Redact pytest's JUnit file, which contains the host's name."""
    named = getattr(config.option, "xmlpath", None)
    if not named or _on_worker(config) or not _redacts(config):
        return
    path = Path(os.path.expandvars(named)).expanduser()
    with contextlib.suppress(OSError):
        document = ET.parse(path)  # noqa: S314 - written by pytest a moment ago
        for element in document.iter():
            element.text = element.text and redacted_text(element.text)
            for name, value in element.attrib.items():
                # Redact this attribute in any case. A short host name such as "vm" is not recognised in text.
                element.set(name, "<host>" if name == "hostname" else redacted_text(value))
        document.write(path, "utf-8", xml_declaration=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> Iterator[None]:
    """End the processes of the run, then write results and report."""
    config = session.config
    interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
    try:
        yield
        _close(config, at_once=interrupted)
    except KeyboardInterrupt:
        interrupted = True
        for plugin in config.pluginmanager.get_plugins():
            if isinstance(plugin, _XdistWorkers):
                plugin.pytest_keyboard_interrupt()
        _close(config, at_once=True)
    if _JOURNAL not in config.stash or _on_worker(config):
        return
    written = False
    try:
        with delayed_signals():
            ended = not interrupted and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
            _finish(session, ended)
            written = True
    except KeyboardInterrupt:
        if not written:
            raise
        interrupted = True
    if interrupted and exitstatus != pytest.ExitCode.INTERRUPTED:
        pytest.exit("interrupted", pytest.ExitCode.INTERRUPTED)


def _close(config: pytest.Config, at_once: bool) -> None:
    if _SESSION in config.stash:
        with _noted_when_full(config):
            config.stash[_SESSION].close(at_once)


def _finish(session: pytest.Session, ended: bool) -> None:
    """Write results and report. If ``ended``, add an end record to the journal first."""
    config, journal = session.config, session.config.stash[_JOURNAL]
    folder = journal.path.parent
    if getattr(config.option, "numprocesses", None):
        # xdist's workers wrote the outcomes.
        journal = RunJournal(folder)
    full = _FULL in config.stash
    if not (full or journal.state.outcomes) and (session.testsfailed or not journal.state.planned):
        return  # The selection or a suite cannot be used, so there is nothing to report.
    if ended and not full:
        with _noted_when_full(config):
            journal.append(End(run.now()))
    from rocmprobe.report.write import write_report

    try:
        config.stash[SUMMARY] = write_report(journal)
    except OSError as error:
        config.stash.setdefault(_FULL, str(error.strerror))
    except Exception:
        # On a full disk, writing the page can raise various errors. The full disk is reported separately.
        if _FULL not in config.stash:
            raise
    if _FULL not in config.stash:
        return
    kept = len(journal.state.outcomes)
    raise CannotWrite(
        f"{folder}: cannot be written any more ({config.stash[_FULL]}); {kept} outcomes are kept; free "
        f"space and continue with `rocmprobe run --resume {folder}`"
    )
