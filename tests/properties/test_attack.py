"""The standing attack: scenarios over every axis, with laws as oracles; short in CI, long in `make
verify`, with other seeds each time, and longer with `python -m tests.properties.campaign`.

A failure is shrunk to a scenario of ten lines, or to one command line, and printed with its seed;
`TWIN_SEED` runs that again."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest
from hypothesis import given, seed, settings

from tests.properties.attack import (
    QUICK,
    UNCHECKED,
    Command,
    Quicker,
    Written,
    quicker,
    spoiled,
    written,
)
from tests.properties.foreign import Spoiled, foreign
from tests.properties.laws import answered, checks, no_slower_with_a_faster_part

SEED: Final = int(os.environ.get("TWIN_SEED", random.SystemRandom().randrange(2**32)))
LONG: Final = settings(
    max_examples=int(os.environ.get("TWIN_EXAMPLES", "400")),
    database=None,
    print_blob=True,
    suppress_health_check=UNCHECKED,
)
SHORT: Final = settings(max_examples=8, suppress_health_check=UNCHECKED)


@pytest.fixture(scope="module", autouse=True)
def _seed() -> None:
    print(f"TWIN_SEED={SEED}")


def keep_laws(attack: Written) -> None:
    for check in checks(attack):
        check()


@SHORT
@given(written())
def test_a_layout_keeps_the_laws(attack: Written) -> None:
    keep_laws(attack)


@pytest.mark.slow
@seed(SEED)
@LONG
@given(written())
def test_many_layouts_keep_the_laws(attack: Written) -> None:
    keep_laws(attack)


@SHORT
@given(spoiled(QUICK))
def test_a_spoiled_scenario_is_refused(command: Command) -> None:
    answered(command)


@pytest.mark.slow
@seed(SEED)
@LONG
@given(spoiled())
def test_many_spoiled_scenarios_are_refused_or_answered(command: Command) -> None:
    answered(command)


@SHORT
@given(foreign())
def test_a_spoiled_file_of_another_program_is_refused_or_read(command: Spoiled) -> None:
    answered(command)


@pytest.mark.slow
@seed(SEED)
@LONG
@given(foreign())
def test_many_spoiled_files_of_other_programs_are_refused_or_read(command: Spoiled) -> None:
    answered(command)


@pytest.mark.slow
@seed(SEED)
@LONG
@given(quicker())
def test_a_faster_part_makes_no_kind_of_work_longer(case: Quicker) -> None:
    no_slower_with_a_faster_part(case)
