"""What a command loads: `--help` almost nothing, `run` no tables, no charts, no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"pydantic", "numpy", "pandas", "networkx", "simpy", "plotly", "streamlit", "torch"}

_PROBE = """
import json, sys
from twin.cli.main import main
code = main()
loaded = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "loaded": loaded}), file=sys.stderr)
"""


def loaded_after(cwd: Path, *arguments: str) -> set[str]:
    """Top-level modules that are in memory when `twin ARGUMENTS` has ended well."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stderr.splitlines()[-1])
    assert seen["code"] == 0, done.stderr
    return set(seen["loaded"])


def test_help_loads_none_of_the_heavy_libraries(tmp_path: Path) -> None:
    assert not loaded_after(tmp_path, "--help") & HEAVY


@pytest.mark.parametrize("verb", ["run", "check", "compare", "resolve", "catalog", "ui"])
def test_help_of_a_verb_loads_none_of_them_either(verb: str, tmp_path: Path) -> None:
    assert not loaded_after(tmp_path, verb, "--help") & HEAVY


def test_a_run_loads_the_engine_but_no_tables_charts_or_torch(tmp_path: Path) -> None:
    loaded = loaded_after(tmp_path, "run", "gpt-175b-64xa100-full", "--json")
    assert "numpy" in loaded
    assert not loaded & {"pandas", "plotly", "streamlit", "torch"}
