"""What the study of fine-tuning trains on, and what it says of outcomes that are made up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reference.studies import fine_tuning
from reference.studies.fine_tuning import (
    ADAMW,
    MUON,
    PLAN,
    SHUFFLED,
    Kind,
    Scores,
    ToolScores,
    gains,
    name_of,
    shuffled,
)
from reference.studies.fine_tuning_text import common_words, renamed, texts, without_mistakes
from reference.studies.study import interval
from reference.text.template import special_tokens
from tests.house.pages import unsourced
from tests.reference.sft.dialogues import row

SEEDS = (0, 1, 2)


def judged(validity: float, success: float) -> ToolScores:
    return ToolScores(
        validity, success, (validity,), (success,), 3, {"name": 1}, {}, 1.0, 1000, 1.0
    )


def found(gain: float) -> Scores:
    """Fine-tuning adds `gain` and a little by seed; the control adds nothing."""
    made: dict[tuple[Kind, int], dict[str, ToolScores]] = {}
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
def test_the_page_says_whether_the_wanted_gain_came_out_and_has_no_figure_without_a_source(
    gain: float, says: str, tmp_path: Path
) -> None:
    page = fine_tuning.page(found(gain), PLAN, SEEDS, tmp_path).text("here")
    validity, _, _ = " ".join(page.split()).partition("- Success")
    assert says in validity
    assert "the control, which itself gains `+0.0 points`" in validity
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


TOOL = {
    "type": "function",
    "function": {
        "name": "get_trip_stop",
        "description": "Get a trip stop.",
        "parameters": {"type": "object", "properties": {"trip_stop_id": {"type": "string"}}},
    },
}


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "get_trip_stop", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": "0", "function": function}]}


DIALOGUE: dict[str, Any] = {
    "id": "trip-1",
    "provenance": {"application": "trips", "split": "train"},
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "Tell me the place of trip stop TP-466. Stop there."},
        call('{"stop_id": "TP-466"}'),
        {"role": "tool", "content": "Error: arguments.stop_id: is not known"},
        call('{"trip_stop_id": "TP-466"}'),
        {"role": "tool", "content": '{"trip_stop_id":"TP-466","place":"Tartu"}'},
        {"role": "assistant", "content": "The place is Tartu."},
    ],
}


def test_a_renamed_dialogue_is_the_same_in_other_words() -> None:
    """Each word and code is another everywhere, and the same one; the language stays."""
    (one, other) = renamed([DIALOGUE], WORDS, 2, 0)
    assert one["messages"] != other["messages"]
    asked, wrong, refused, right, told, answer = one["messages"]
    name = one["tools"][0]["function"]["name"]
    _, trip, stop = name.split("_")
    assert {trip, stop} < set(WORDS)
    assert right["tool_calls"][0]["function"]["name"] == name
    (key,) = one["tools"][0]["function"]["parameters"]["properties"]
    assert key == f"{trip}_{stop}_id"
    code = json.loads(right["tool_calls"][0]["function"]["arguments"])[key]
    place = next(field for field in json.loads(told["content"]) if field != key)
    assert place in WORDS
    assert code != "TP-466"
    assert asked["content"] == (
        f"Tell me the {place} of {trip} {stop} {code}. {stop.capitalize()} there."
    )
    assert answer["content"] == f"The {place} is Tartu."
    assert refused["content"] == f"Error: arguments.{stop}_id: is not known"
    assert wrong["tool_calls"][0]["function"]["arguments"] == f'{{"{stop}_id": "{code}"}}'
    assert one["tools"][0]["function"]["parameters"]["type"] == "object"


def test_plurals_stay_plurals_and_codes_keep_their_form() -> None:
    said = "Tell me how many trip stops the trip of trip stop TP2-466 has."
    asked = {**DIALOGUE, "messages": [{"role": "user", "content": said}]}
    (one,) = renamed([asked], WORDS, 1, 0)
    found = re.fullmatch(
        r"Tell me how many (\w+) (\w+)s the \1 of \1 \2 [A-Z]{2}2-\d{3} has.",
        one["messages"][0]["content"],
    )
    assert found
    assert set(found.groups()) < set(WORDS)


def test_words_of_many_applications_stay() -> None:
    rows = [
        {**DIALOGUE, "provenance": {"application": str(number), "split": "train"}}
        for number in range(6)
    ]
    assert common_words(rows[:5]) == frozenset()
    assert {"get", "trip", "stop", "place", "id"} <= common_words(rows)
    (one,) = renamed(rows[:1], WORDS, 1, 0)
    assert one["tools"] != rows[0]["tools"]
    (*_, last) = renamed(rows, WORDS, 1, 0)
    assert last["tools"] == rows[0]["tools"]


def test_calls_that_were_refused_are_not_learned() -> None:
    assert without_mistakes(DIALOGUE)["learned"] == [False, False, False, True, False, True]
