"""Comparisons with a known outcome: what a critic is taught by, and how far it is trusted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from reference.rl.critique.__main__ import main
from reference.rl.critique.ranking import (
    Rubric,
    VerifiedPair,
    agreement,
    by_generator,
    comparison_dialogs,
    comparison_rows,
    refined,
    rubrics,
    verified_pairs,
)
from reference.text.dialogs import read_examples
from tests.reference.rl.critique.critics import INTENT, Judges

RIGHT = Rubric(name="right", asks="It is right.")
LONG = Rubric(name="long", asks="It says much.", weight=2.0)
KIND = Rubric(name="kind", asks="It is kind.")


def test_groups_give_pairs_of_a_right_and_a_wrong_answer() -> None:
    groups = [
        ("q", [("a", True), ("b", False), ("c", True), ("d", False), ("e", False)]),
        ("r", [("a", True), ("b", True)]),
        ("s", [("x", True), ("x", False), ("", False)]),
    ]
    found = verified_pairs(groups, 99, 0)
    assert {*found} == {VerifiedPair("q", "a", "b"), VerifiedPair("q", "c", "d")}
    assert len(verified_pairs(groups, 1, 0)) == 1
    assert verified_pairs(groups, 99, 3) == verified_pairs(groups, 99, 3)


def noisy(rubric: str, text: str) -> float:
    """Sees what is right four times in five, length always, and kindness at random."""
    if rubric == LONG.asks:
        return len(text)
    draw = random.Random(rubric + text)
    if rubric == RIGHT.asks:
        return float(("good" in text) == (draw.random() < 0.8)) + draw.random() / 10
    return draw.random()


def pairs(count: int, seed: int) -> list[VerifiedPair]:
    """The wrong answer is the longer one three times in four."""
    draw = random.Random(seed)
    found: list[VerifiedPair] = []
    for at in range(count):
        more = "long " * 9
        right, wrong = ("", more) if draw.random() < 0.75 else (more, "")
        found.append(
            VerifiedPair(f"q{at}", f"good {seed} {at} {right}", f"bad {seed} {at} {wrong}")
        )
    return found


def test_closed_loop_refinement_raises_agreement_on_outcomes_that_it_has_not_seen() -> None:
    critic, given = by_generator(Judges(noisy)), (RIGHT, LONG, KIND)
    fresh = pairs(120, 2)
    before = agreement(critic, fresh, given)
    after = agreement(critic, fresh, refined(critic, pairs(120, 1), given))
    assert before is not None
    assert after is not None
    print(f"agreement {before:.2f} -> {after:.2f}")
    assert before < 0.5, "length, which counts double, misleads it"
    assert after > 0.65


def test_refinement_on_shuffled_outcomes_teaches_nothing() -> None:
    critic, given = by_generator(Judges(noisy)), (RIGHT, LONG, KIND)
    draw = random.Random(0)
    mixed = [
        one if draw.random() < 0.5 else VerifiedPair(one.question, one.wrong, one.right)
        for one in pairs(200, 1)
    ]
    honest = refined(critic, pairs(200, 1), given)
    for one, other in zip(refined(critic, mixed, given), honest, strict=True):
        assert one.weight < 0.5
        assert other.weight <= 100
    assert honest[0].weight > 1
    assert honest[1].weight == 0


def test_agreement_by_hand() -> None:
    critic = by_generator(Judges(lambda _, text: len(text)))
    told = [
        VerifiedPair("q", "aaa", "b"),
        VerifiedPair("q", "a", "bbb"),
        VerifiedPair("q", "aa", "bb"),
    ]
    assert agreement(critic, told, [INTENT]) == pytest.approx(0.5)
    assert agreement(critic, told[:1], [INTENT]) == 1
    assert agreement(critic, [], [INTENT]) is None


def test_rows_hold_both_orders_and_fine_tuning_reads_them(tmp_path: Path) -> None:
    found = [VerifiedPair("q", "yes", "no"), VerifiedPair("r", "so", "not so")]
    said = comparison_dialogs(found, [RIGHT, KIND])
    assert [one.messages[-1].content for one in said] == ["A", "B", "A", "B"]
    assert 'A: "yes"' in said[0].messages[0].content
    assert 'B: "yes"' in said[1].messages[0].content
    assert KIND.asks in said[2].messages[0].content
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(json.dumps(one) + "\n" for one in comparison_rows(found, [RIGHT, KIND]))
    )
    read = read_examples([str(file)])
    assert [one.dialog.messages for one in read] == [one.messages for one in said]
    assert {one.learned for one in read} == {(False, True)}


def test_the_command_writes_comparisons_of_a_familys_oracle_and_tricks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "critic.jsonl"
    words = ["--tasks", "morse", "--levels", "1,2", "--count", "6", "--answers", "2"]
    assert main([*words, "--out", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    examples = read_examples([str(out)])
    assert told["dialogues"] == len(examples) == 2 * told["comparisons"] == 24
    assert {one.dialog.messages[-1].content for one in examples} == {"A", "B"}
    before = out.read_bytes()
    assert main([*words, "--out", str(out)]) == 0
    assert out.read_bytes() == before, "equal words, equal bytes"
    asks = {one.asks for name in ("core", "prescriptive") for one in rubrics(name)}
    assert all(any(ask in one.dialog.messages[0].content for ask in asks) for one in examples)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--tasks", "errands"], "TW654"),
        (["--tasks", "morse", "--levels", "7"], "TW650"),
        (["--tasks", "morse", "--rubrics", "none"], "TW652"),
    ],
)
def test_what_teaches_no_critic_is_refused(
    words: list[str], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path / "x")]) == 2
    assert code in capsys.readouterr().err
