"""The house rules that a machine can see in the files: sizes, names, and nothing of one machine."""

from __future__ import annotations

import ast
import re
import statistics
import tomllib
from itertools import chain
from pathlib import Path

import pytest

_OF_ONE_MACHINE = re.compile(r"/(?:home|root|Users|mnt|opt|srv|work|workspace|farm)/[A-Za-z.]")
SCENARIO_NAME = re.compile(
    r"(?P<model>[a-z0-9]+(-[a-z0-9]+)*)-(?P<gpus>\d+)x(?P<gpu>[a-z][a-z0-9]*)(-[a-z0-9-]+)?"
)


@pytest.fixture(scope="module")
def sources(root: Path) -> list[Path]:
    """The modules of the simulator and of the reference."""
    return sorted(file for room in ("twin", "reference") for file in (root / room).rglob("*.py"))


def functions(source: Path) -> list[tuple[str, int]]:
    """Name and length in lines of every function in a file."""
    tree = ast.parse(source.read_text())
    return [
        (f"{source.name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_no_file_carries_a_path_of_one_machine(root: Path) -> None:
    files = [
        file
        for folder in ("twin", "reference", "tests", "scenarios", "docs", ".ci", ".streamlit")
        for file in (root / folder).rglob("*")
        if file.suffix not in (".pyc", ".png")
    ]
    files += [file for file in root.iterdir() if file.suffix in (".md", ".py", ".toml")]
    found = [
        f"{file.relative_to(root)}:{number}: {line.strip()}"
        for file in files
        if file.is_file()
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), start=1)
        if _OF_ONE_MACHINE.search(line)
    ]
    assert files
    assert found == []


def test_no_file_is_longer_than_500_lines(sources: list[Path]) -> None:
    lengths = {str(source): len(source.read_text().splitlines()) for source in sources}
    assert lengths
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_functions_are_short(sources: list[Path]) -> None:
    lengths = dict(entry for source in sources for entry in functions(source))
    assert {name: lines for name, lines in lengths.items() if lines > 80} == {}
    assert statistics.quantiles(lengths.values(), n=10)[-1] <= 35


def test_every_package_that_is_asked_for_has_its_licence_in_the_notices(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=;~! ]", one)[0] for one in asked} - {"twin"}
    notices = (root / "THIRD_PARTY_NOTICES.md").read_text()
    listed = notices[notices.index("## Python packages") : notices.index("## vTrain")]
    assert names <= set(re.findall(r"[\w.-]+", listed))


def test_shipped_scenarios_are_named_model_gpucount_gputype_variant(root: Path) -> None:
    names = [path.stem for path in sorted((root / "scenarios").glob("*.yaml"))]
    assert names
    assert [name for name in names if not SCENARIO_NAME.fullmatch(name)] == []
