"""What the study of fine-tuning trains on, and what it says of outcomes that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reference.dialog import dialog_of
from reference.inference.template import special_tokens
from reference.studies import fine_tuning
from reference.studies.fine_tuning import ADAMW, MUON, PLAN, SHUFFLED, Found, gains, interval
from reference.studies.fine_tuning_invented import invented
from reference.studies.fine_tuning_runs import Judged, Kind, name_of, shuffled
from reference.studies.fine_tuning_text import texts
from reference.studies.report import text
from tests.house.pages import unsourced
from tests.reference.sft.dialogues import row

SEEDS = (0, 1, 2)


def judged(validity: float, success: float) -> Judged:
    return Judged(validity, success, (validity,), (success,), 3, {"name": 1}, {}, 1.0, 1000, 1.0)


def found(gain: float) -> Found:
    """Fine-tuning adds `gain` and a little by seed; the control adds nothing."""
    made: dict[tuple[Kind, int], dict[str, Judged]] = {}
    for seed in SEEDS:
        after = judged(0.1 + gain + seed / 100, gain / 2)
        kinds: tuple[Kind, ...] = ("muonclip", "adamw")
        for kind in kinds:
            made[kind, seed] = {
                name_of(None): judged(0.1, 0.0),
                name_of(MUON): after,
                name_of(ADAMW): after,
            }
        made["muonclip", seed][name_of(SHUFFLED)] = judged(0.1, 0.0)
    return made


def test_gains_are_by_seed_and_their_interval_is_students() -> None:
    assert gains(found(0.5), "muonclip", MUON, "validity") == pytest.approx([0.5, 0.51, 0.52])
    # Mean 2, standard deviation 1, 4.303 / sqrt(3) of it either side.
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 2.4843, 2 + 2.4843), abs=1e-3)


@pytest.mark.parametrize(("gain", "says"), [(0.5, ": met"), (0.1, ": not met")])
def test_the_report_says_whether_what_was_asked_for_came_out(gain: float, says: str) -> None:
    told = fine_tuning.findings(found(gain))
    assert says in told[0]
    assert "the control, which itself gains `+0.0 points`" in told[0].replace("\n", " ")


def test_the_page_has_no_figure_without_a_source(tmp_path: Path) -> None:
    page = text(fine_tuning.report(found(0.5), PLAN, SEEDS, tmp_path), "here", [])
    assert not unsourced(page)
    assert "| pre-trained with adamw |" in page


def said(one: dict[str, Any]) -> list[str]:
    return [json.dumps(part) for part in one["messages"] if part["role"] == "assistant"]


def test_shuffled_labels_are_those_of_others_of_the_same_kind() -> None:
    rows = [row(number, held_out=number > 6) for number in range(10)]
    rows[2]["messages"] = rows[2]["messages"][:2]  # none other ends there
    made = shuffled(rows)
    assert said(made[2]) == said(rows[2])
    others = [at for at in range(10) if at != 2]
    assert all(said(made[at]) != said(rows[at]) for at in others)
    assert sorted(map(said, made)) == sorted(map(said, rows))
    for at, one in enumerate(made):
        kept = [part for part in one["messages"] if part["role"] != "assistant"]
        assert kept == [part for part in rows[at]["messages"] if part["role"] != "assistant"]
        assert one["tools"] == rows[at]["tools"]
    assert {said(made[at])[1] for at in (7, 8, 9)} == {said(rows[at])[1] for at in (7, 8, 9)}


WORDS = [f"{first}{second}" for first in "bdfgk" for second in ("al", "en", "or")]


def test_text_repeats_itself_and_spells_no_marker() -> None:
    made = list(texts(WORDS, 30, 1))
    assert made == list(texts(WORDS, 30, 1)) != list(texts(WORDS, 30, 2))
    assert not any(name in one for one in made for name in special_tokens())
    for one in made:
        *_, last = one.split("\n")
        words = [word for word in last.replace('"', " ").split() if len(word) > 3]
        before = one[: -len(last)] or one
        assert sum(word.strip(",.{}:") in before for word in words) >= len(words) / 2


def test_invented_dialogues_say_nothing_that_does_not_stand_before() -> None:
    for one in invented(WORDS, 20, 1):
        dialog = dialog_of(one)
        asked, call, told, answer = dialog.messages
        names = {tool["function"]["name"]: tool["function"]["parameters"] for tool in dialog.tools}
        (made,) = call.calls
        arguments = json.loads(made.arguments)
        assert list(arguments) == names[made.name]["required"]
        assert all(value in asked.content for value in arguments.values())
        label, _, value = answer.content.removeprefix("The ").removesuffix(".").partition(" is ")
        assert json.loads(told.content)[label.replace(" ", "_")] == value
        assert f"Tell me the {label}." in asked.content
