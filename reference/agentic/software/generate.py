"""Repositories with an issue, from seeds: equal seeds give equal bytes.

Hidden tests expect what the right repository answers, run in the sandbox as submissions are. A test
that the planted bug changes must pass after the fix; all other tests must stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from string import Template
from typing import Any, Literal

from reference.agentic.code.hidden import CheckGroup, CheckResult, Raises, is_expected, run_checks
from reference.files import yaml_table

AT_ONCE = 12
"""Repositories whose expected values come from one sandbox run."""
_README = """# $package

$about

Run the tests with `python -m unittest discover -s tests -t .`
"""
BugKind = Literal["boundary", "condition", "state", "argument", "missing case", "arithmetic"]
"""An off-by-one; a wrong or missing test; state kept or lost between calls; a wrong argument, field
or order; an input without a branch; a wrong formula."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A replacement in one file that makes it wrong, and a user's report of the effect."""

    kind: BugKind
    path: str
    good: str
    """Occurs once in the file."""
    bad: str
    title: str
    report: str
    """The action, the result and the expected result; never the place of the bug."""

    @property
    def issue(self) -> str:
        """Title and report."""
        return f"{self.title}\n\n{self.report}"


@dataclass(frozen=True, slots=True)
class Project:
    """A small project, from `projects/NAME.yaml`. Its texts hold `$name` where repositories of the
    project differ."""

    name: str
    about: str
    words: Mapping[str, Sequence[str]]
    """The values of each `$name`; `package` is one of them."""
    sources: Mapping[str, str]
    """Files of the package, below its folder."""
    tests: str
    """The visible tests; the right repository passes them."""
    begin: str
    """The first lines of each check."""
    checks: tuple[str, ...]
    """Hidden tests: Python texts that each set `result`."""
    bugs: tuple[PlantedBug, ...]


@cache
def projects() -> Mapping[str, Project]:
    """All projects by name."""
    folder = Path(__file__).with_name("projects")
    return {path.stem: _project(path.stem, yaml_table(path)) for path in sorted(folder.iterdir())}


def _project(name: str, row: dict[str, Any]) -> Project:
    bugs = tuple(PlantedBug(**bug) for bug in row["bugs"])
    return Project(name=name, **{**row, "bugs": bugs, "checks": tuple(row["checks"])})


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement of a text that occurs once in a file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class HiddenTest:
    """A Python text that sets `result`, and its expected value."""

    code: str
    expected: Any
    """A plain value, or `Raises`."""
    fails: bool
    """Whether it fails before the fix."""


@dataclass(frozen=True, slots=True)
class BuggyRepository:
    """The files, the bug and the tests that decide."""

    id: str
    project: str
    bug: str
    """The kind of the bug."""
    files: Mapping[str, str]
    source: str
    """The folder of the package, the only one that may change."""
    issue: str
    hidden: tuple[HiddenTest, ...]
    gold: Patch
    """The fix."""
    wrong: tuple[Patch, ...]
    """Patches that apply and each break something else."""

    def mended(self) -> dict[str, str]:
        """The files with the fix."""
        text = self.files[self.gold.path].replace(self.gold.old, self.gold.new)
        return {**self.files, self.gold.path: text}


def generate(seed: int) -> BuggyRepository:
    """The repository of a seed, of any project and bug."""
    return make_many([(*choose(seed), seed)])[0]


def choose(seed: int) -> tuple[Project, PlantedBug]:
    """The project and the bug of a seed."""
    draw = Random(f"repository {seed}")
    project = draw.choice(tuple(projects().values()))
    return project, draw.choice(project.bugs)


def make_many(wanted: Sequence[tuple[Project, PlantedBug, int]]) -> list[BuggyRepository]:
    """The repositories of these projects, bugs and seeds."""
    made: list[BuggyRepository] = []
    for begin in range(0, len(wanted), AT_ONCE):
        drafts = [draft(*row) for row in wanted[begin : begin + AT_ONCE]]
        files: dict[str, str] = {}
        groups: list[CheckGroup] = []
        for at, (repository, checks) in enumerate(drafts):
            for side, texts in (("right", repository.mended()), ("wrong", repository.files)):
                files |= {f"{at}/{side}/{path}": text for path, text in texts.items()}
                groups.append(CheckGroup(checks, path=f"{at}/{side}"))
        results = run_checks(groups, files)
        for at, (repository, checks) in enumerate(drafts):
            rows = zip(checks, results[2 * at], results[2 * at + 1], strict=True)
            made.append(replace(repository, hidden=tuple(_hidden_test(*row) for row in rows)))
    return made


def draft(project: Project, bug: PlantedBug, seed: int) -> tuple[BuggyRepository, tuple[str, ...]]:
    """The repository without its hidden tests, and the texts of these tests."""
    draw = Random(f"repository {project.name} {bug.kind} {seed}")
    chosen = {name: draw.choice(values) for name, values in project.words.items()}
    package = chosen["package"]

    def filled(text: str) -> str:
        return Template(text).substitute({"about": project.about, **chosen})

    files = {
        "README.md": filled(_README),
        f"{package}/__init__.py": f'"""{project.about}"""\n',
        "tests/__init__.py": "",
        f"tests/test_{project.name}.py": filled(project.tests),
    }
    for path, text in project.sources.items():
        files[f"{package}/{path}"] = filled(text)
    patches = {
        planted.kind: _patch(
            files, filled(planted.good), filled(planted.bad), f"{package}/{planted.path}"
        )
        for planted in project.bugs
    }
    gold = patches.pop(bug.kind)
    files[gold.path] = files[gold.path].replace(gold.new, gold.old)
    wrong = (Patch(patch.path, patch.new, patch.old) for patch in patches.values())
    made = BuggyRepository(
        id=f"{project.name}-{bug.kind.replace(' ', '-')}-{seed}",
        project=project.name,
        bug=bug.kind,
        files=files,
        source=package,
        issue=filled(bug.issue),
        hidden=(),
        gold=gold,
        wrong=tuple(patch for patch in wrong if files[patch.path].count(patch.old) == 1),
    )
    return made, tuple(filled(project.begin + check) for check in project.checks)


def candidates(repository: BuggyRepository, seed: int) -> tuple[dict[str, str], ...]:
    """Patches for a rule-based policy that cannot write code, in the order in which it tries them:
    the fix, and two that break something else; as arguments of `edit_file`."""
    draw = Random(f"candidates {repository.id} {seed}")
    wrong = draw.sample(repository.wrong, min(2, len(repository.wrong)))
    patches = [asdict(patch) for patch in (repository.gold, *wrong)]
    draw.shuffle(patches)
    return tuple(patches)


def hints(repository: BuggyRepository, seed: int) -> dict[str, object]:
    """Metadata for the rule-based skill `program`."""
    return {"kind": "program", "candidates": candidates(repository, seed)}


def _patch(files: Mapping[str, str], good: str, bad: str, path: str) -> Patch:
    """The patch from bad to good, with enough whole lines around to occur once."""
    text = files[path]
    assert text.count(good) == 1, (path, good)
    first, last = text.index(good), text.index(good) + len(good)
    broken = text.replace(good, bad)
    for _ in range(4):
        first = text.rfind("\n", 0, max(0, first - 1)) + 1
        last = len(text) if (end := text.find("\n", last)) < 0 else end + 1
        new = text[first:last]
        old = new.replace(good, bad)
        if broken.count(old) == 1 and text.count(new) == 1:
            return Patch(path, old, new)
    raise AssertionError((path, bad))


def _hidden_test(code: str, right: CheckResult, wrong: CheckResult) -> HiddenTest:
    assert right.kind in ("value", "raises"), right
    expected = Raises(right.value) if right.kind == "raises" else right.value
    return HiddenTest(code, expected, not is_expected(wrong, expected))
