"""The reference itself on a loop that the twin wrote: as many prompts, tokens and updates."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from reference.rl.run import learn_from
from reference.rl.spec import RlSpec, load_rl
from twin.evidence.loop.layouts import find
from twin.evidence.loop.rl_loop import PAIRS, measured
from twin.evidence.loop.rl_trainer import configuration
from twin.kinds.iteration.plan import plan

SMALL = [
    "rl.rollout.requests=4",
    "rl.rollout.prompt={kind: constant, each: 30}",
    "rl.rollout.written={kind: constant, each: 5}",
    "rl.iteration.optimizer_steps=1",
    "train.sequence=40tok",
]


def asked(folder: Path) -> RlSpec:
    (layout,) = find(["rl-updates"], sets=SMALL)
    file = folder / "trainer.json"
    file.write_text(json.dumps(configuration(plan(layout.scenario), folder / "run", 2)))
    return load_rl(file)


def test_the_loop_reads_and_writes_as_many_tokens_as_it_was_told(tmp_path: Path) -> None:
    """The last token of an answer is drawn and never read; the engine reads all others once."""
    threads = torch.get_num_threads()
    try:
        result = learn_from(asked(tmp_path))
    finally:
        torch.set_num_threads(threads)
    for one in result.iterations:
        assert dict(one.ended) == {"budget": 4}
        assert one.written == 4 * 5
        assert one.computed == 4 * (30 + 5 - 1)
        assert one.groups == 2
    assert result.step == 2
    (found,) = measured(tmp_path / "run")
    assert found.keys() == PAIRS.keys()
    assert min(found.values()) > 0
