"""Settings of the whole test run: hypothesis, and which machines may leave a test out."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.command import Command

ROOT = Path(__file__).parent.parent

# Timing on a shared machine says nothing about a law, so no deadline. CI repeats the same examples,
# half as many as a person's run, which finds others each time.
settings.register_profile(
    "house",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=50 if "CI" in os.environ else 100,
)
settings.load_profile("house")

_POINTS = pytest.StashKey[Path]()
_BROWSER_REQUIRED = bool(os.environ.get("TWIN_REQUIRE_BROWSER"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout: the folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def points(pytestconfig: pytest.Config) -> Path:
    """Where searches of this run, in whichever process, keep what they have answered."""
    return pytestconfig.stash[_POINTS]


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reads what a person told the twin, or tells it anything."""
    os.environ["TWIN_CONFIG"] = str(tmp_path_factory.mktemp("settings"))


@pytest.fixture(scope="session", autouse=True)
def _documents_as_told() -> Generator[None]:
    """Every JSON document that a verb writes has the form that its schema tells."""
    from twin.cli.output import Output  # noqa: PLC0415

    write = Output.document

    def checked(self: Output, document: Mapping[str, Any]) -> None:
        write(self, document)
        if self.json and self.verb:
            from tests.documents import seen  # noqa: PLC0415  a run without answers needs none

            seen(self.verb, document)

    Output.document = checked
    yield
    Output.document = write


@pytest.fixture
def twin_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs `twin WORDS` in an empty folder, without colour."""
    from tests.command import command_in  # noqa: PLC0415  few tests need the command

    return command_in(tmp_path, monkeypatch, capsys)


@pytest.fixture(scope="module")
def chromium() -> Generator[Any]:
    """A real browser, and no test without one. Of one module: Playwright starts only once at a
    time in a process, and code under test may start it itself."""
    sync_api = pytest.importorskip("playwright.sync_api")
    from reference.studies.figure import MISSING, executable, launch  # noqa: PLC0415  few need it

    if executable() is None:
        pytest.skip(f"no {MISSING}")
    with sync_api.sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where a browser is required, a browser test that was skipped has failed."""
    report = yield
    if _BROWSER_REQUIRED and report.skipped and item.get_closest_marker("browser"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, but TWIN_REQUIRE_BROWSER is set"
    return report


class BrowserCensus:
    """Counts the browser tests that passed; where a browser is required, none is a failure."""

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Reports of every worker arrive in the main process."""
        if report.when == "call" and report.passed and "browser" in report.keywords:
            self.passed += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Turns an otherwise green run red."""
        if not self.passed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Says why, above the last line."""
        if not self.passed:
            terminalreporter.section("browser tests were required, and none passed", red=True)


def pytest_collection_finish() -> None:
    """Imports leave a million objects for good: the garbage collector need not walk them again."""
    gc.enable()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end they are garbage again: libraries tell what nobody takes away as a leak."""
    gc.unfreeze()


def pytest_configure(config: pytest.Config) -> None:
    """Nothing is garbage while tests are imported. Answers are stored in a folder of this run,
    which workers inherit. Only the main process counts browser tests: with xdist, workers carry
    `workerinput`."""
    gc.disable()
    if not hasattr(config, "workerinput"):
        runs = TemporaryDirectory(prefix="twin-runs-", ignore_cleanup_errors=True)
        os.environ["TWIN_RUNS"] = runs.name
        config.add_cleanup(runs.cleanup)
    config.stash[_POINTS] = Path(os.environ["TWIN_RUNS"], "points")
    if _BROWSER_REQUIRED and not hasattr(config, "workerinput"):
        config.pluginmanager.register(BrowserCensus())
