"""The study of planted facts: what counts as survived and as recalled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from reference.data.stage import Record, write_records
from reference.studies.facts import (
    ARMS,
    CARRIERS,
    CHOICES,
    FORMS,
    READINGS,
    planted,
    recall,
    run_arm,
    survival,
)
from reference.text.tokenizer import ByteTokenizer
from reference.text.toy import Town, towns

KNOWN = towns(9, seed=1)


class Knows(nn.Module):
    """A model of bytes that knows some texts by heart, and nothing else."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self.following = {
            text[:at].encode(): text[at].encode()[0] for text in texts for at in range(1, len(text))
        }

    def forward(self, ids_BT: Tensor) -> Tensor:
        logits_BTW = torch.zeros(*ids_BT.shape, 257)
        for row, ids in enumerate(ids_BT.tolist()):
            for place in range(len(ids)):
                before = bytes(one for one in ids[1 : place + 1] if one < 256)
                if before in self.following:
                    logits_BTW[row, place, self.following[before]] = 9.0
        return logits_BTW


def _recalled(told: list[str], known: tuple[Town, ...], form: str = "as told") -> float:
    found = recall(Knows(told), ByteTokenizer(), known, form)  # pyright: ignore[reportArgumentType]
    assert len(found) == 4 * len(known)
    return sum(value for _, value in found) / len(found)


def test_a_model_recalls_what_it_knows_and_not_what_it_confuses() -> None:
    told = [fact.sentence for town in KNOWN for fact in town.facts]
    assert _recalled(told, KNOWN) == 1.0
    assert 0.5 <= _recalled(told[: len(told) // 2], KNOWN) < 0.5 + 3 / CHOICES
    swapped = [
        replace(fact, answer=other.answer).sentence
        for town, another in zip(KNOWN, [*KNOWN[1:], KNOWN[0]], strict=True)
        for fact, other in zip(town.facts, another.facts, strict=True)
        if fact.answer != other.answer
    ]
    assert _recalled(swapped, KNOWN) < 0.25


def test_other_forms_ask_for_the_same_answers() -> None:
    asked = "Who was the first mayor of {}? It was {}."
    told = [asked.format(town.name, town.facts[1].answer) for town in KNOWN]
    found = recall(Knows(told), ByteTokenizer(), KNOWN, "as a question")  # pyright: ignore[reportArgumentType]
    assert [value for _, value in found][1::4] == [1.0] * len(KNOWN)
    told = [f"It is reported that t{town.facts[2].sentence[1:]}" for town in KNOWN]
    found = recall(Knows(told), ByteTokenizer(), KNOWN, "in a style")  # pyright: ignore[reportArgumentType]
    assert [value for _, value in found][2::4] == [1.0] * len(KNOWN)


def test_groups_share_no_town_and_differ_between_seeds() -> None:
    found = [planted(3, 5, seed) for seed in (0, 1)]
    assert [len(found[0][name]) for name in (*READINGS, *CARRIERS)] == [3, 3, 3, 3, 2]
    names = [{town.name for those in one.values() for town in those} for one in found]
    assert [len(one) for one in names] == [14, 14]
    assert names[0] != names[1]


def test_facts_that_a_rewriting_lost_have_not_survived(tmp_path: Path) -> None:
    (tmp_path / "rephrase").mkdir()
    lost = KNOWN[0].text.replace(KNOWN[0].facts[0].answer, "an early year")
    records = [
        Record("x", "maths", "maths", lost, "plain", "maths/maths.jsonl:1"),
        Record("y", "others", "web", "Nothing.", "plain", "others/others.jsonl:1"),
    ]
    write_records(tmp_path / "rephrase" / "rewrites.jsonl", records)
    assert survival(tmp_path, {"maths": KNOWN, "others": KNOWN}) == 3 / 4


@pytest.mark.slow
def test_each_arm_builds_trains_and_is_asked(tmp_path: Path) -> None:
    known = planted(4, 4, 0)
    for arm in ARMS:
        found = run_arm(arm, known, tmp_path, 0, steps=2)
        assert found == run_arm(arm, known, tmp_path, 0, steps=2)
        texts = 12 * max(1, arm.rephrasings)
        assert texts - found.refused <= found.documents <= texts
        assert found.survived > 0.95
        assert {len(found.asked[group][form]) for group in READINGS for form in FORMS} == {16}
