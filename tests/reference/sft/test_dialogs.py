"""What is learned of dialogues, and how they lie in rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from reference.text.dialogs import DialogLoader, Packing, PreparedDialogs, prepare_dialogs
from reference.text.loader import IGNORED
from reference.text.packing import pack
from reference.text.prepare import Prepared, TextFacts
from reference.text.spec import DialogsSpec
from reference.text.tokenizer import ByteTokenizer, Vocabulary
from tests.reference.sft.dialogues import ROOM, row, write
from twin.errors import UsageError

WORDS = 267
"""Bytes, an end, and ten markers."""


def text() -> Prepared:
    facts = TextFacts("nothing", "bytes", *[0] * 8)
    return Prepared(facts, ByteTokenizer(), pack([], 257, "text"), pack([], 257))


def prepared(source: Path, sequence: int = ROOM, **fields: str) -> PreparedDialogs:
    spec = DialogsSpec.model_validate({"source": str(source), **fields})
    return prepare_dialogs(spec, text(), WORDS, sequence)


def spelled(ids: np.ndarray) -> str:
    words = Vocabulary(ByteTokenizer(), WORDS)
    return "".join(words.spelled(int(one)) for one in ids)


def test_what_the_assistant_says_is_learned_and_nothing_else(tmp_path: Path) -> None:
    given = prepared(write(tmp_path / "one.jsonl", [row(3)])).training
    ids, wanted = given.targets(0)
    assert spelled(ids[wanted != IGNORED]) == (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        '<|tool_call_argument_begin|>{"town": "Town3"}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>Rain 3.!!!<|im_end|>"
    )
    assert (wanted == np.where(wanted == IGNORED, IGNORED, ids)).all()
    assert ids[-1] == ByteTokenizer().end


@pytest.mark.parametrize("number", [2, 3], ids=["without tools", "with tools"])
def test_messages_that_a_line_does_not_mark_are_not_learned(tmp_path: Path, number: int) -> None:
    marked = {**row(number), "learned": [False, False, False, True]}
    given = prepared(write(tmp_path / "one.jsonl", [marked])).training
    ids, wanted = given.targets(0)
    assert spelled(ids[wanted != IGNORED]) == f"Rain {number}.{'!' * number}<|im_end|>"


@pytest.mark.parametrize("packing", ["shared", "alone"])
def test_each_epoch_learns_every_dialogue_once_in_rows_of_whole_ones(
    dialogues: Path, packing: Packing
) -> None:
    given = prepared(dialogues, packing=packing)
    loader = given.loader((ROOM, 1), seed=4)
    learned: list[str] = []
    orders: list[tuple[str, ...]] = []
    for _ in range(2):
        seen: list[str] = []
        while len(seen) < 8:
            tokens_BT, targets_BT = next(loader)
            assert tokens_BT.shape == (1, ROOM)
            wanted = targets_BT[0].numpy()
            said = spelled(wanted[wanted != IGNORED])
            seen += [part for part in said.split("<|im_end|>") if part.startswith("Rain")]
            assert packing == "shared" or said.count("Rain") == 1
            follows = torch.where(targets_BT == IGNORED, tokens_BT.roll(-1, 1), targets_BT)
            assert torch.equal(follows[:, :-1], tokens_BT[:, 1:])
        orders.append(tuple(seen))
        learned += seen
    assert sorted(learned) == sorted([f"Rain {one}." + "!" * one for one in range(8)] * 2)
    assert orders[0] != orders[1]


def test_ranks_and_micro_batches_take_the_same_rows(dialogues: Path) -> None:
    given = prepared(dialogues)
    one = DialogLoader(given.training, "shared", (ROOM, 4), 1)
    two = [DialogLoader(given.training, "shared", (ROOM, 2), 1, (rank, 2)) for rank in (0, 1)]
    for _ in range(5):
        whole_BT, _ = next(one)
        assert torch.equal(whole_BT, torch.cat([next(two[0])[0], next(two[1])[0]]))


def test_a_loader_goes_on_where_another_stood(dialogues: Path) -> None:
    given = prepared(dialogues)
    first = given.loader((ROOM, 2), 1)
    for _ in range(7):
        next(first)
    second = given.loader((ROOM, 2), 1)
    second.load_state_dict(first.state_dict())
    for _ in range(5):
        assert torch.equal(next(first)[1], next(second)[1])
    with pytest.raises(UsageError, match="TW227"):
        given.loader((ROOM, 2), 2).load_state_dict(first.state_dict())


def test_longer_sequences_begin_with_the_next_epoch(dialogues: Path) -> None:
    given = prepared(dialogues)
    loader = given.loader((ROOM, 1), 1)
    next(loader)
    longer = loader.with_sequences(2 * ROOM, 1)
    second = given.loader((2 * ROOM, 1), 1)
    second.base = 1
    assert torch.equal(next(longer)[0], next(second)[0])
    assert torch.equal(loader.with_sequences(ROOM, 1).__next__()[0], next(loader)[0])


def test_dialogues_that_are_too_long_are_left_out_or_cut_and_counted(tmp_path: Path) -> None:
    long = row(1)
    long["messages"][0]["content"] += "?" * ROOM
    late = row(1)
    late["messages"][3]["content"] += "!" * ROOM
    path = write(tmp_path / "long.jsonl", [row(0), long, late])
    facts = prepared(path).facts
    assert (facts.training, facts.left_out, facts.cut, facts.silent) == (1, 2, 0, 0)
    cut = prepared(path, too_long="cut")
    # Of the first nothing is left to learn; the other keeps its call.
    assert (cut.facts.training, cut.facts.cut, cut.facts.silent) == (2, 1, 1)
    assert max(cut.training.lengths) == ROOM + 1


def test_held_out_dialogues_are_judged_once(dialogues: Path) -> None:
    given = prepared(dialogues)
    assert (given.facts.training, given.facts.held_out) == (8, 2)
    targets = torch.cat([wanted_BT for _, wanted_BT in given.held_out(ROOM, 1)]).flatten()
    said = spelled(targets[targets != IGNORED].numpy())
    assert sorted(part for part in said.split("<|im_end|>") if "Rain" in part) == [
        "Rain 8.!!!!!!!!",
        "Rain 9.!!!!!!!!!",
    ]
    learned = ("functions.weather:0", '{"town": "Town8"}', "Rain 8.!!!!!!!!")
    assert given.bytes_of(targets) == 2 * sum(map(len, learned)) + 1


def test_lines_that_are_no_dialogues_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    bad = [{**row(1), "learned": [True]}, {"tools": []}, row(2)]
    path.write_text("".join(json.dumps(one) + "\n" for one in bad) + "{\n")
    with pytest.raises(UsageError) as raised:
        prepared(path)
    told = str(raised.value)
    assert told.count("TW601") == 3
    assert all(f"bad.jsonl:{line} " in told for line in (1, 2, 4))
    with pytest.raises(UsageError, match="TW600"):
        prepared(tmp_path / "absent.jsonl")
