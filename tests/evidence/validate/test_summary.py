"""How right the twin is, in a dozen lines; the README says what the answers that ship say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.evidence.validate.made import answer
from tests.evidence.validate.readme import README, VALIDATION, limits, section
from twin.evidence.validate import shipped_answers
from twin.evidence.validate.summary import COLUMNS, Summary, lines, sentence

ERRORS = (0.01, -0.02, 0.03, -0.04, 0.5)
ANSWERS = (
    *(answer(f"h100-{n}", error, interval=(1.9, 2.1)) for n, error in enumerate(ERRORS)),
    answer("refused", None),
    answer("fitted", 9.0, use="fit"),
    answer("vtrain", 0.1, gpu="A100-80GB", source="VIA-Research/vTrain (MICRO 2024), one node"),
    answer("kernel", 0.0, use="fit", category="kernel", metric="kernel_seconds"),
)


def made(*answers, **others) -> Summary:
    return Summary(len(answers), answers, {}, (), (), **others)


def told(summary: Summary) -> dict[str, tuple[str, ...]]:
    return {one.name: one.cells() for one in lines(summary)}


def test_a_line_counts_rows_that_judge_and_those_that_could_not_be_expressed() -> None:
    cells = dict(zip(COLUMNS, told(made(*ANSWERS))["on H100"], strict=True))
    assert cells["rows"] == "5"
    assert cells["expressed"] == "83.3 %"
    assert cells["median"] == "3.0 %"
    assert cells["9 in 10"] == "31.6 %", "0.04 + 0.6 x (0.5 - 0.04)"
    assert cells["largest"] == "50.0 %"
    assert cells["inside interval"] == "5 of 5"
    assert cells["nearest"] == "-"


def test_steps_are_split_by_gpu_and_rows_of_a_table_stay_apart() -> None:
    found = told(made(*ANSWERS))
    assert list(found) == ["Training steps", "on A100, of vTrain's tables", "on H100"]
    assert found["Training steps"][1] == "6"


def test_rows_that_were_all_fitted_are_told_by_fits_without_them() -> None:
    summary = replace(made(*ANSWERS), left_out=(replace(ANSWERS[-1], predicted=2.5),))
    assert told(summary)["Kernels, left out of their fit"][:4] == (
        "Kernels, left out of their fit", "1", "100.0 %", "25.0 %",
    )  # fmt: skip


def test_iterations_of_reinforcement_learning_are_told_whole_and_without_their_phases() -> None:
    iteration = {"category": "rl_step", "metric": "iteration_seconds"}
    found = told(
        made(
            answer("in-turns", 0.2, **iteration),
            answer("one-step-off", -0.4, **iteration),
            answer("no-seconds", None, **iteration),
            answer("in-turns", 9.0, category="rl_step", metric="rollout_seconds"),
        )
    )
    assert list(found) == ["Iterations of RL"]
    assert found["Iterations of RL"][1:4] == ("2", "66.7 %", "30.0 %")


def test_the_sentence_is_of_rows_and_of_families() -> None:
    assert sentence(made(*ANSWERS)) == (
        "6 held-out published training steps: median error 3.5 %; 6.5 % over their 2 families of "
        "near copies; 100.0 % lie inside their 80 % interval."
    )


@pytest.mark.parametrize("rows", [(), (ANSWERS[6],)])
def test_where_no_step_judges_the_sentence_says_so(rows) -> None:
    assert "is a held-out training step" in sentence(made(*rows))


def test_pages_say_what_the_answers_that_ship_say() -> None:
    shipped = shipped_answers.shipped()
    assert shipped is not None
    mend = "run `python -m tests.evidence.validate.readme`"
    assert section(shipped.summary) in README.read_text(), mend
    assert limits(shipped.summary) in VALIDATION.read_text(), mend
