"""A run that asks its model trains the same weights as one that does not."""

import json
from pathlib import Path

import pytest
import torch

from reference.config import load_run
from reference.evaluate.run import refuse_impossible
from reference.train import train
from tests.reference.evaluate.conftest import MEANS
from twin.errors import TwinError

ASKS = [
    "evaluate.every=2",
    "evaluate.tasks=[held-out, {name: repeat, output_tokens: 3}]",
    "evaluate.limit=2",
]


def _trained(mini, folder, *more):
    said = [*MEANS, "train.steps=4", "train.final_sequences=0", f"train.output={folder}"]
    result = train(load_run(mini, [*said, *more]), existing="resume")
    random = torch.get_rng_state()
    return result, random


def test_asking_changes_no_bit_of_the_training(mini, tmp_path):
    plain, before = _trained(mini, tmp_path / "plain")
    asks, after = _trained(mini, tmp_path / "asks", *ASKS)
    for (name, one), other in zip(
        plain.model.state_dict().items(), asks.model.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name
    assert torch.equal(before, after)
    assert [one.loss for one in plain.steps] == [one.loss for one in asks.steps]
    assert [one.max_logit for one in plain.steps] == [one.max_logit for one in asks.steps]
    lines = Path(tmp_path / "asks" / "metrics.jsonl").read_text().splitlines()
    told = [row for row in map(json.loads, lines) if row["kind"] == "tasks"]
    assert [row["step"] for row in told] == [2, 4]
    assert told[0]["tasks"]["held-out"] != told[1]["tasks"]["held-out"]
    assert told[1]["tasks"]["repeat"]["pass@1"]["cases"] == 2
    # A run may be resumed with other questions.
    _trained(mini, tmp_path / "asks", "evaluate.every=3")


def test_several_ranks_and_unknown_tasks_are_refused_before_the_first_step(mini, tmp_path):
    spec = load_run(mini, ASKS).evaluate
    refuse_impossible(spec, 1)
    with pytest.raises(TwinError, match="TW590"):
        refuse_impossible(spec, 2)
    with pytest.raises(TwinError, match="TW581"):
        _trained(mini, tmp_path / "none", "evaluate.every=1", "evaluate.tasks=[nothing]")
