"""What the README and the docs tell people to type works, and prints what they say it prints."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import twin
from tests.house.pages import Step, missing_claims, missing_lines, steps, unsourced
from twin.cli.main import main
from twin.errors import TwinError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ROOT / "docs" / "fields.md"
LONG = {
    "calibrate",
    "cost",
    "design-studies",
    "experts",
    "goodput",
    "improve",
    "memory",
    "overlap",
    "recommend",
    "rl-iteration",
    "rollouts",
    "schedule",
    "thresholds",
    "tutorial",
    "validation",
    "whole-run",
}
"""Pages whose commands take a quarter of a minute and more: followed by `make verify`."""
SEARCHED = {ROOT / "README.md"}
"""Pages with a search on the way that takes a minute. `make verify` does it; else its scenario is
checked, and `tests/cli/test_recommend.py` does a small one."""


def name(page: Path) -> str:
    """A page as links name it."""
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of stored runs for all pages: what one has answered costs the next nothing."""
    return tmp_path_factory.mktemp("runs")


class Reader:
    """Goes through one page in an empty folder, and notes where it is wrong."""

    def __init__(self, read: Callable[[], str], *, searches: bool) -> None:
        self.wrong: list[str] = []
        self._read = read
        self._searches = searches
        self._last = ""
        self._printed: dict[str, str] = {}

    def take(self, step: Step) -> None:
        """Do what the step says, or compare it with what was printed."""
        missing = getattr(self, f"_{step.kind}")(step)
        self.wrong += [f"line {step.line}: {one}" for one in missing or ()]

    def _save(self, step: Step) -> list[str]:
        path = Path(step.of or "unnamed.yaml")
        path.write_text(step.text)
        try:
            if step.text.startswith("schema:"):
                twin.plan(twin.load(path))
        except TwinError as error:
            return [str(error)]
        return []

    def _command(self, step: Step) -> list[str]:
        command, _, says = step.text.partition("# exit ")
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            target = re.compile(rf"^{words[1]}:", re.MULTILINE)
            return [] if target.search((ROOT / "Makefile").read_text()) else [step.text]
        if words[:2] == ["mkdir", "-p"]:
            Path(words[2]).mkdir(parents=True)
            return []
        if words[0] != "twin":
            return [f"nothing here runs {step.text!r}"]
        if "--reference" in words:
            return [f"{step.text}: trains for minutes; name its arguments in capitals"]
        if words[1] == "improve" and not self._searches:
            words[1:] = ["check", *words[2:]]
        opens = ["--json"] if words[1] == "ui" else []  # else it serves until it is interrupted
        code = main([*words[1:], *opens])
        self._last = self._printed[step.text] = self._read()
        return [] if code == int(says or 0) else [f"{step.text}: exit {code}\n{self._last}"]

    def _python(self, step: Step) -> list[str]:
        script = Path("script.py")
        script.write_text(step.text)
        runpy.run_path(str(script))
        self._last = self._read()
        return []

    def _shown(self, step: Step) -> list[str]:
        return self._compare(step, missing_lines)

    def _says(self, step: Step) -> list[str]:
        if step.of:
            return self._compare(step, missing_claims)
        return [f"{one} has neither a command nor a source" for one in unsourced(step.text)]

    def _compare(self, step: Step, missing: Callable[[str, str], list[str]]) -> list[str]:
        wrong: list[str] = []
        if step.of and step.of not in self._printed:
            wrong = self._command(Step(step.line, "command", step.of))
        printed = self._printed[step.of] if step.of else self._last
        return wrong + [f"not printed: {one}" for one in missing(step.text, printed)]


@pytest.mark.parametrize(
    ("page", "searches"),
    [
        *(
            pytest.param(
                page,
                page not in SEARCHED,
                marks=[pytest.mark.slow] * (page.stem in LONG),
                id=name(page),
            )
            for page in PAGES
            if page != GENERATED
        ),
        *(
            pytest.param(page, True, marks=pytest.mark.slow, id=f"{name(page)}, searches")
            for page in SEARCHED
        ),
    ],
)
def test_a_page_can_be_followed_from_top_to_bottom(
    page: Path,
    searches: bool,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TWIN_RUNS", str(runs))
    monkeypatch.setenv("NO_COLOR", "1")

    def read() -> str:
        seen = capsys.readouterr()
        return seen.out + seen.err

    reader = Reader(read, searches=searches)
    for step in steps(page):
        reader.take(step)
    assert not reader.wrong, "\n".join(reader.wrong)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = r'\]\((?!https?:)([^)]+)\)|\bsrc(?:set)?="(?!https?:)([^"]+)"'
    for target in map("".join, re.findall(links, page.read_text())):
        path, _, heading = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not heading or heading in anchors(linked), target


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in PAGES[1:]:
        if page.name != "README.md":
            assert f"({page.relative_to(ROOT / 'docs').as_posix()})" in index, page.name


# The checks themselves: what is wrong on a page is found.

PRINTED = "Step time      29.4 s   34.6 s (+17.5 %, worse)\nMemory        38.9 GiB   38 GiB\n"


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("A step takes 29.4 s.", []),
        ("A step takes 9.4 s.", ["9.4 s"]),
        ("It is +17.5 % slower.", []),
        ('It is "worse", not "better".', ["better"]),
        ("The paper has [13.75 s](https://arxiv.org/abs/2205.05198).", []),
        ("| Step time | 29.4 s | 34.6 s |", []),
        ("| Step time | 34.6 s | 29.4 s |", ["| Step time | 34.6 s | 29.4 s |"]),
        ("| Memory | 29.4 s |", ["| Memory | 29.4 s |"]),
        ("| | plain | other |", []),
    ],
)
def test_a_claim_that_is_not_printed_is_found(said: str, missing: list[str]) -> None:
    assert heads(missing_claims(said, PRINTED)) == missing


def test_an_excerpt_keeps_words_and_order_but_may_break_lines_elsewhere() -> None:
    assert missing_lines("Step time 29.4 s\n34.6 s\n...\n38 GiB", PRINTED) == []
    assert heads(missing_lines("Memory\n...\nStep time", PRINTED)) == ["Step time"]
    assert heads(missing_lines("Step time 34.6 s", PRINTED)) == ["Step time 34.6 s"]
    assert heads(missing_lines("9.4 s", PRINTED)) == ["9.4 s"]


def heads(missing: list[str]) -> list[str]:
    """What is missing, without what the output says instead."""
    return [one.partition("\n")[0] for one in missing]


def test_what_is_missing_comes_with_what_to_write() -> None:
    assert missing_claims("| Memory | 37 GiB | 38 GiB |", PRINTED) == [
        "| Memory | 37 GiB | 38 GiB |\n  now: Memory 38.9 GiB 38 GiB"
    ]


def test_a_number_without_a_command_or_a_source_is_found() -> None:
    assert unsourced("A step of 29.4 s, as `step_seconds < 30s` says") == ["29.4 s"]
    assert unsourced("It took [18.13 s](https://arxiv.org/abs/2205.05198), in 8 stages") == []


def test_a_page_is_read_in_order(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Try `twin catalog gpus`, a form of `twin catalog SHELF`.\n\n"
        "```yaml my.yaml\nschema: 1\n```\n"
        "```sh\ntwin run my.yaml   # exit 4\n```\n\n```text\nDoes not fit\n```\n\n"
        "<!-- twin check my.yaml -->\n\n| Step time | 3 s |\n| `twin run my.yaml -q` | 4 s |\n"
    )
    assert [(step.kind, step.text, step.of) for step in steps(page)] == [
        ("command", "twin catalog gpus", ""),
        ("says", "Try `twin catalog gpus`, a form of `twin catalog SHELF`.", ""),
        ("save", "schema: 1\n", "my.yaml"),
        ("command", "twin run my.yaml   # exit 4", ""),
        ("shown", "Does not fit", ""),
        ("says", " 4 s ", "twin run my.yaml -q"),
        ("says", "| Step time | 3 s |", "twin check my.yaml"),
    ]
