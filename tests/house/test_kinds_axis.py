"""Verbs, command line, app, sweeps and store ask a kind of work; no branch of theirs tests one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOMS: Final = ("answers", "cli", "explore", "reports", "ui")
SCENARIOS: Final = frozenset({"Scenario", "UpdateScenario"})
SECTIONS: Final = frozenset({"iteration", "phases", "rl", "weight_update"})
EXCEPTIONS: Final = {
    "answers/nearest.py:replaced": "reads plain data of either root before there is a kind to ask",
    "cli/answer.py:training": "narrows a type after kinds without a step have refused",
    "cli/sweep.py:_asked": "only a training run has the fidelity that the request states",
    "explore/sweep/points.py:_answered": "refuses a step in a sweep of whole answers (TW185)",
    "reports/serving.py:engines_of": "lists the engines that a scenario of any kind declares",
    "reports/serving.py:_model": "reads which model a declared engine serves",
}
"""Branches that may stay, by file and function, with the reason."""


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    """Every expression that decides a branch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.Match):
            yield node.subject


def names_a_kind(condition: ast.expr) -> bool:
    """Whether a condition tests the class of a scenario, or the presence of a kind's section."""
    match condition:
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
            names = {node.id for node in ast.walk(classes) if isinstance(node, ast.Name)}
            return bool(names & SCENARIOS)
        case ast.Compare(left=left, comparators=[ast.Constant(value=None)]):
            return names_a_kind(left)
        case ast.Compare(left=left, comparators=[ast.Constant(value=str())]):
            return ast.unparse(left).endswith("kind.name")
        case ast.Compare():
            return any(isinstance(n, ast.Name) and n.id in SCENARIOS for n in ast.walk(condition))
        case ast.Attribute(value=owner, attr=attr):
            return attr in SECTIONS and "scenario" in ast.unparse(owner)
        case _:
            return False


def branches(file: Path, room: Path) -> set[str]:
    """`folder/file.py:function` of every branch in a file that tests a kind."""
    return {
        f"{file.relative_to(room).as_posix()}:{function.name}"
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
        if any(map(names_a_kind, conditions(function)))
    }


def test_only_listed_branches_test_a_kind(root: Path) -> None:
    files = [file for room in ROOMS for file in (root / "twin" / room).rglob("*.py")]
    assert files
    found = set[str]().union(*(branches(file, root / "twin") for file in files))
    assert found == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    "condition",
    [
        "isinstance(loaded, Scenario)",
        "isinstance(loaded, (UpdateScenario, Other))",
        "plan.scenario.rl is not None",
        "scenario.phases",
        "run.kind.name != 'step'",
        "UpdateScenario.section in base",
    ],
)
def test_a_branch_that_names_a_kind_is_found(tmp_path: Path, condition: str) -> None:
    file = tmp_path / "module.py"
    for use in (f"if {condition}:\n  pass", f"1 if {condition} else 2", f"ready or {condition}"):
        body = use.replace("\n", "\n  ")
        file.write_text(f"def branch():\n  {body}\n")
        assert branches(file, tmp_path) == {"module.py:branch"}, use
