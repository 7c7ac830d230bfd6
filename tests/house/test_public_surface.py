"""`import twin` offers the verbs, and nothing is loaded until one is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import twin

VERBS = ("compare", "load", "lower", "plan", "report", "simulate")


def test_every_exported_name_can_be_had() -> None:
    assert set(VERBS) <= set(twin.__all__)
    assert [name for name in twin.__all__ if not hasattr(twin, name)] == []


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_a_documented_function(verb: str) -> None:
    function = getattr(twin, verb)
    assert callable(function)
    assert function.__doc__


@pytest.mark.parametrize(
    "first",
    [
        "twin.planning.types",
        "twin.reports.report",
        "twin.engine.trace",
        "twin.loading",
        "twin.scenario",
    ],
)
def test_verbs_stay_functions_whichever_room_is_imported_first(first: str) -> None:
    """`twin.planning` and `twin.reports` are rooms as well: importing one must not hide its
    verb."""
    program = (
        f"import {first}, twin; print([v for v in {VERBS!r} if not callable(getattr(twin, v))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_importing_twin_loads_no_library() -> None:
    program = "import sys, twin; print(sorted({'pydantic', 'numpy', 'simpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
