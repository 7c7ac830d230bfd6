"""Budget control, PTX and the decay of temperature each act: runs with and without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from reference.rl.run import RlResult, learn_from
from reference.rl.spec import run_of
from reference.text.prepare import prepare
from tests.reference.rl.mini import spec

pytestmark = pytest.mark.slow


def played(folder: Path, **sections: Any) -> RlResult:
    """The toy of characters from random weights."""
    base: dict[str, Any] = {
        "tasks": [{"source": "characters", "count": 9}],
        "prompts": {"count": 9},
        "rollout": {"responses": 8, "cap": 16},
        "rewards": {"over_budget": 0.0},
        "train": {"sequence": 40, "micro_batch": 36},
        "objective": {"kl_weight": 0.02},
        "iterations": 24,
    }
    for name, section in sections.items():
        both = isinstance(section, dict) and isinstance(base.get(name), dict)
        base[name] = {**base[name], **section} if both else section
    return learn_from(spec(folder, **base))


def cut(result: RlResult) -> float:
    """Share of the last five iterations' responses that met their bound."""
    last = result.iterations[-5:]
    return sum(one.ended.get("budget", 0) / sum(one.ended.values()) for one in last) / 5


def test_a_penalty_makes_responses_end_before_their_bound(tmp_path: Path) -> None:
    free, bound = played(tmp_path), played(tmp_path, rewards={"over_budget": 0.5})
    lengths = [sum(one.length or 0 for one in run.iterations[-5:]) / 5 for run in (free, bound)]
    print(f"cut {cut(free):.2f} -> {cut(bound):.2f}, tokens {lengths[0]:.1f} -> {lengths[1]:.1f}")
    assert cut(bound) < cut(free) - 0.3
    assert lengths[1] < 0.8 * lengths[0]


def test_ptx_keeps_text_likely(tmp_path: Path) -> None:
    given = run_of(spec(tmp_path))
    text = prepare(given.data, given.model.vocab)
    found: dict[str, float] = {}
    for name, section in (("without", None), ("with", {"weight": 0.1, "rows": 4})):
        result = played(tmp_path, ptx=section)
        batches = list(text.held_out(40))
        with torch.no_grad():
            losses = [result.model.eval().loss(*batch).item() for batch in batches]
        reward = sum(one.reward or 0 for one in result.iterations[-5:]) / 5
        found[name] = sum(losses) / len(losses)
        print(f"{name} PTX: {found[name]:.3f} nats per byte held out, reward {reward:.3f}")
    assert found["with"] < found["without"] - 0.5


def test_a_high_temperature_explores_and_its_decay_ends_that(tmp_path: Path) -> None:
    """The first weights are nearly uniform, so that what temperature does shows once they have
    learned: the same run goes on, cold or warm."""
    rewards: dict[str, float] = {}
    for name, section in (
        ("warm", {"first": 1.8, "last": 1.8}),
        ("decay", {"first": 1.8, "last": 0.6, "iterations": 24}),
    ):
        result = played(tmp_path, temperature=section)
        rewards[name] = sum(one.reward or 0 for one in result.iterations[-3:]) / 3
        print(f"{name}: reward {rewards[name]:.3f}, entropy {result.iterations[-1].entropy:.2f}")
    assert rewards["decay"] > rewards["warm"]
