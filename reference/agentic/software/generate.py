"""Repositories with an issue, from seeds: equal seeds give equal bytes.

What hidden tests expect is what the right repository answers, asked in the sandbox as submissions
are. A test that the planted bug makes answer otherwise must come to pass; all others must stay so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from string import Template
from typing import Any

from reference.agentic.code.hidden import Answer, Group, Raises, ask, same
from reference.agentic.software.project import Bug, Project, projects
from reference.sandbox.isolation import Isolation

AT_ONCE = 12
"""Repositories whose right answers are asked for in one run of the sandbox."""
_README = """# $package

$about

Run the tests with `python -m unittest discover -s tests -t .`
"""


@dataclass(frozen=True, slots=True)
class Patch:
    """A replacement of a text that stands once in a file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class HiddenTest:
    """A Python text that sets `result`, and what it must give."""

    code: str
    expected: Any
    """A plain value, or `Raises`."""
    fails: bool
    """Whether it fails before the issue is mended."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What is there, what is wrong with it, and what decides."""

    id: str
    project: str
    bug: str
    """Its kind."""
    files: Mapping[str, str]
    source: str
    """The folder of the package: what may change."""
    issue: str
    hidden: tuple[HiddenTest, ...]
    gold: Patch
    """Mends it."""
    wrong: tuple[Patch, ...]
    """Each breaks something else, and can be applied."""

    def mended(self) -> dict[str, str]:
        """The files with the gold patch."""
        text = self.files[self.gold.path].replace(self.gold.old, self.gold.new)
        return {**self.files, self.gold.path: text}


def generate(seed: int, isolation: Isolation | None = None) -> Repository:
    """The repository of a seed, of any project and bug."""
    return generate_many([seed], isolation)[0]


def generate_many(seeds: Iterable[int], isolation: Isolation | None = None) -> list[Repository]:
    """The repositories of these seeds; each is the one that `generate` gives."""
    return make_many([(*choose(seed), seed) for seed in seeds], isolation)


def choose(seed: int) -> tuple[Project, Bug]:
    """The project and the bug of a seed."""
    draw = random.Random(f"repository {seed}")
    project = draw.choice(tuple(projects().values()))
    return project, draw.choice(project.bugs)


def make_many(
    asked: Sequence[tuple[Project, Bug, int]], isolation: Isolation | None = None
) -> list[Repository]:
    """The repositories of these projects, bugs and seeds."""
    found: list[Repository] = []
    for begin in range(0, len(asked), AT_ONCE):
        drafts = [draft(*one) for one in asked[begin : begin + AT_ONCE]]
        files: dict[str, str] = {}
        groups: list[Group] = []
        for at, (made, checks) in enumerate(drafts):
            for side, texts in (("right", made.mended()), ("wrong", made.files)):
                files |= {f"{at}/{side}/{path}": text for path, text in texts.items()}
                groups.append(Group(checks, path=f"{at}/{side}"))
        answers = ask(groups, files, isolation=isolation)
        for at, (made, checks) in enumerate(drafts):
            found.append(_with_tests(made, checks, answers[2 * at], answers[2 * at + 1]))
    return found


def draft(project: Project, bug: Bug, seed: int) -> tuple[Repository, tuple[str, ...]]:
    """The repository without its hidden tests, and their texts."""
    draw = random.Random(f"repository {project.name} {bug.kind} {seed}")
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
        one.kind: _widened(files, filled(one.good), filled(one.bad), f"{package}/{one.path}")
        for one in project.bugs
    }
    gold = patches.pop(bug.kind)
    files[gold.path] = files[gold.path].replace(gold.new, gold.old)
    wrong = (Patch(one.path, one.new, one.old) for one in patches.values())
    made = Repository(
        id=f"{project.name}-{bug.kind.replace(' ', '-')}-{seed}",
        project=project.name,
        bug=bug.kind,
        files=files,
        source=package,
        issue=filled(bug.issue),
        hidden=(),
        gold=gold,
        wrong=tuple(one for one in wrong if files[one.path].count(one.old) == 1),
    )
    return made, tuple(map(filled, project.checks))


def _widened(files: Mapping[str, str], good: str, bad: str, path: str) -> Patch:
    """The patch from bad to good, with as many whole lines around as make it stand once."""
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


def _with_tests(
    draft: Repository,
    checks: Sequence[str],
    right: Sequence[Answer],
    wrong: Sequence[Answer],
) -> Repository:

    tests = [
        HiddenTest(code, expected := _expected(good), not same(bad, expected))
        for code, good, bad in zip(checks, right, wrong, strict=True)
    ]
    return replace(draft, hidden=tuple(tests))


def _expected(answer: Answer) -> Any:
    assert answer.kind in ("value", "raises"), answer
    return Raises(answer.value) if answer.kind == "raises" else answer.value
