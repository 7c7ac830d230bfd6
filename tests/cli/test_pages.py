"""What the pages say of exit codes, error codes and CI is so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ruamel.yaml import YAML

from tests.command import Command
from twin import errors
from twin.planning import feasibility

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language on a page."""
    fence = rf"^```{language}\n(.*?)^```"
    return re.findall(fence, (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_workflow_of_the_ci_page_passes_on_its_scenario(
    twin_command: Command, tmp_path: Path
) -> None:
    """Every `twin` command of the workflow, in its order, on the page's own scenario; the branch
    that it compares with holds the same one."""
    scenario, workflow, _ = blocks("ci.md", "yaml")
    (tmp_path / "plan.yaml").write_text(scenario)
    (tmp_path / "before.yaml").write_text(scenario)
    steps = YAML(typ="safe", pure=True).load(workflow)["jobs"]["plan"]["steps"]
    lines = [line for step in steps for line in step.get("run", "").splitlines()]
    commands = [line.partition(">")[0] if " > plan" in line else line for line in lines]
    words = [shlex.split(one)[1:] for one in commands if one.startswith("twin ")]
    assert [one[0] for one in words] == ["check", "run", "compare", "run"]
    for one in words:
        done = twin_command(*one)
        assert done.code == 0, done.out + done.err


def test_the_workflow_fails_where_the_plan_got_worse(twin_command: Command, tmp_path: Path) -> None:
    scenario, *_ = blocks("ci.md", "yaml")
    (tmp_path / "before.yaml").write_text(scenario)
    (tmp_path / "plan.yaml").write_text(scenario.replace("-selective", "-full"))
    assert twin_command("run", "plan.yaml", "--quiet").code == 5
    limit = ("--fail-if", "step_seconds > +2%")
    assert twin_command("compare", "before.yaml", "plan.yaml", "--quiet", *limit).code == 5


def test_every_code_in_the_source_is_on_the_page() -> None:
    told = codes_told("scenarios.md")
    meant = {**errors.CODES, **feasibility.CODES}
    table = "\n".join(f"| `{code}` | {words} |" for code, words in sorted(meant.items()))
    assert {code: told.get(code) for code in meant} == meant, f"the page should say:\n{table}"
    assert codes_used("twin") == set(told)


def test_every_code_of_the_trainer_is_on_its_page_or_the_twin_s() -> None:
    twin, trainer = set(codes_told("scenarios.md")), set(codes_told("trainer-errors.md"))
    assert not twin & trainer
    assert codes_used("reference") - twin == trainer


def codes_told(page: str) -> dict[str, str]:
    """What a page says that each code means; no code stands there twice."""
    rows = re.findall(r"^\| `(TW\d{3})` \| (.*) \|$", (PAGES / page).read_text(), re.MULTILINE)
    assert [code for code, _ in rows] == sorted({code for code, _ in rows})
    return dict(rows)


def codes_used(folder: str) -> set[str]:
    """The codes that the source in a folder gives to problems."""
    sources = (file.read_text() for file in (ROOT / folder).rglob("*.py"))
    return {code for source in sources for code in re.findall(r'"(TW\d{3})"', source)}


def test_the_exit_codes_of_the_help_are_those_of_the_page(twin_command: Command) -> None:
    page = (PAGES / "exit-codes.md").read_text()
    told = re.findall(r"\d+", " ".join(re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)))
    shown = " ".join(twin_command("--help").out.split()).partition("Exit codes: ")[2]
    assert re.findall(r"\b(\d+)\b", shown) == told
