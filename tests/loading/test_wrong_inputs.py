"""Every wrong input says where it is wrong, with a stable code, a caret and the nearest fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.loading.wrong_inputs import CASES, WrongInput
from twin.errors import CODES, TwinError
from twin.loading import load


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_input_is_explained(case: WrongInput, workshop: Path) -> None:
    for name, text in case.files.items():
        workshop.joinpath(name).write_text(text, encoding="utf-8")
    with pytest.raises(TwinError) as caught:
        load(case.scenario, case.overrides)
    assert str(caught.value) == case.text
    assert caught.value.exit_code == case.exit_code


def test_every_loading_code_is_explained_and_shown_by_a_case() -> None:
    shown = {code for code in CODES if any(f"{code} " in case.text for case in CASES)}
    assert shown == set(CODES)


@pytest.mark.usefixtures("workshop")
def test_problems_are_also_flat_data() -> None:
    with pytest.raises(TwinError) as caught:
        load("toy.yaml", ["parallel.pipelin=8"])
    assert [problem.as_dict() for problem in caught.value.problems] == [
        {
            "code": "TW010",
            "path": "parallel.pipelin",
            "message": "unknown key `pipelin` in `parallel`",
            "hint": "did you mean `pipeline`?",
            "file": "--set",
            "line": 1,
            "column": 16,
        }
    ]
