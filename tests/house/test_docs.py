"""What the README and the docs tell people to type works, and ends as they say."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

import twin

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language on all pages."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return [block for page in PAGES for block in fence.findall(page.read_text())]


COMMANDS = sorted(
    {line for block in blocks("sh") for line in block.splitlines() if line.startswith("twin ")}
)
SCENARIOS = [block for block in blocks("yaml") if block.startswith("schema:")]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_pages_ends_as_they_say(line: str, program: Path, tmp_path: Path) -> None:
    words = shlex.split(line, comments=True)
    says = re.search(r"# exit (\d+)", line)
    done = subprocess.run(
        [program, *words[1:]], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == (int(says[1]) if says else 0), done.stderr


@pytest.mark.parametrize("text", SCENARIOS, ids=lambda text: text.splitlines()[1])
def test_a_scenario_of_the_pages_can_be_planned(text: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    assert twin.plan(twin.load(path)).microbatches > 0


def test_the_pages_have_commands_and_scenarios() -> None:
    assert len(COMMANDS) >= 5
    assert len(SCENARIOS) >= 2


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
