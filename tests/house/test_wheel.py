"""What a planner installs: the simulator with its scenarios, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
DATA = (".yaml", ".md", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, root],
        check=True,
    )
    return next(folder.glob("twin-*.whl"))


def test_the_wheel_holds_the_simulator_and_its_scenarios_only(root: Path, wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"twin"}
    shipped = {
        f"twin/_scenarios/{path.relative_to(root / 'scenarios')}"
        for path in (root / "scenarios").rglob("*.yaml")
    }
    assert shipped
    assert shipped <= set(names)
    data = (path for path in (root / "twin").rglob("*.*") if path.suffix in DATA)
    assert {str(path.relative_to(root)) for path in data} <= set(names), "tables beside code"
    assert "twin/py.typed" in names


def test_an_installed_wheel_finds_its_own_scenarios(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", home, wheel],
        check=True,
    )
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import twin;"
        "print(twin.__file__); print(twin.load('kimi-k2-256xh800').name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, home],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, name = done.stdout.splitlines()
    assert Path(file).is_relative_to(home)
    assert name == "Kimi K2 pre-training on 256 H800"
