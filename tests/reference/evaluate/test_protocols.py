"""Ways of asking that make their own cases: needles fit their lengths, attacks are all asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from reference.config import TaskChoice
from reference.dialog import Dialog
from reference.evaluate.protocols.protocol import EvaluationContext, protocol
from reference.evaluate.report import svg
from reference.evaluate.subject import SampledAnswer
from reference.evaluate.task import NeedleSpec, open_task
from reference.evaluate.trained import open_trained
from reference.generate.request import Reply, Tokens


@pytest.fixture(scope="module")
def subject(run):
    return open_trained(Path(run.train.output))


def _needle(lengths, **fields):
    task = open_task(TaskChoice(name="needle"))
    grid = NeedleSpec(lengths=lengths, facts=2, **fields)
    spec = task.spec.model_copy(update={"needle": grid, "context_tokens": 700})
    return replace(task, spec=spec)


def test_a_needle_stands_at_its_depth_in_a_text_of_its_length(subject):
    task = _needle((300, 600), depths=(0.0, 0.5, 1.0))
    cases = protocol("needle").cases(task, subject)
    assert len(cases) == 2 * 3 * 2
    for case in cases:
        row = case.row
        text, said = row["prompt"], f"is {row['target']}."
        length = subject.tokens(text)
        assert row["length"] - 70 < length <= row["length"] - 1  # a filler sentence has up to 70
        asked = text.rindex("The secret word")
        place = text.index("The secret word") / (asked - len(said) - 24)
        assert place == pytest.approx(row["depth"], abs=0.25)
        assert text.count(said) == 1
        assert row["target"] in row["choices"]
        assert len(set(row["choices"])) == 8


def test_lengths_beyond_training_are_left_out_and_named(subject):
    task = _needle((600, 701, 9000))
    cases = protocol("needle").cases(task, subject)
    assert {case.row["length"] for case in cases} == {600}
    rows = [
        {
            "id": case.id,
            "group": case.id,
            "length": 600,
            "depth": case.row["depth"],
            "score": 1.0,
            "score_per_byte": 1.0,
            "nats": [0.0] * 8,
            "cut": 0,
        }
        for case in cases
    ]
    found = protocol("needle").summary(task, rows)
    assert found.counts["lengths_beyond_training"] == [701, 9000]
    assert found.matrix is not None
    assert [cells[0]["value"] for cells in found.matrix["cells"]] == [1.0] * 5


class _Target:
    """Gives in to one kind of attack, in the last turn."""

    def __init__(self):
        self.turns: list[int] = []

    def write(self, prompts):
        found = []
        for prompt in prompts:
            assert isinstance(prompt.said, Dialog)
            users = [one.content for one in prompt.said.messages if one.role == "user"]
            self.turns.append(len(users))
            canary = prompt.said.messages[0].content.split("say the word ")[1].split(",")[0]
            weak = "crossword" in users[-1]
            reply = Reply(canary if weak else "No.", (), Tokens(1, 1), "stop")
            found.append(SampledAnswer(reply))
        return found


def test_each_attack_is_judged_in_its_cell_and_turns_hear_the_answers():
    task = open_task(TaskChoice(name="canary"))
    target = _Target()
    rows = protocol("attack").ask(task, task.cases, EvaluationContext(cast("Any", target), 0))
    found = protocol("attack").summary(task, rows)
    assert found.matrix is not None
    kinds = found.matrix["columns"]["values"]
    assert kinds == ["plain", "base64", "injection", "crescendo"]
    for cells in found.matrix["cells"]:
        assert [cell["value"] for cell in cells] == [0, 0, 0, 1]
        assert all(cell["cases"] == 3 for cell in cells)
    assert found.better == "lower"
    assert max(target.turns) == 3


def test_a_matrix_is_drawn_with_every_share_in_its_cell():
    cell = {"value": 0.25, "low": 0.1, "high": 0.5, "cases": 8}
    matrix = {
        "title": "Shares & more",
        "rows": {"name": "depth", "values": [0.0, 1.0]},
        "columns": {"name": "tokens", "values": [64]},
        "cells": [[cell], [None]],
    }
    drawn = ET.fromstring(svg(matrix, "<a>"))
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0.25", "8", "-", "64", "Shares & more", "<a>"} <= set(texts)
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}rect"))) == 1
