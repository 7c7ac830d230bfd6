"""Runs small enough to play many times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reference.rl.spec import RlSpec
from tests.reference.inference.small import LATENT

TEXT = "What a tokenizer of bytes reads makes no difference.\n"


def spec(folder: Path, **sections: Any) -> RlSpec:
    """The toy of characters on the smallest model; texts and caches are in `folder`."""
    source = folder / "text"
    if not source.exists():
        source.mkdir(parents=True)
        for number in range(4):
            (source / f"{number}.txt").write_text(f"{number} {TEXT}" * (number + 2))
    written: dict[str, Any] = {
        "model": LATENT,
        "data": {
            "source": str(source),
            "held_out": 0.3,
            "cache": str(folder / "cache"),
            "tokenizer": {"kind": "bytes"},
        },
        "tasks": [{"source": "characters", "count": 6}],
        "iterations": 3,
        "prompts": {"count": 3},
        "rollout": {"responses": 3, "cap": 8, "repeat": {"window": 0}},
        "rewards": {"of": "score", "over_budget": 0.0},
        "objective": {"kl_weight": 0.05},
        "train": {"sequence": 32, "micro_batch": 4, "precision": "fp32"},
        "optimizer": {"lr": 0.03},
        "engine": {"blocks": 64},
    }
    for name, section in sections.items():
        old = written.get(name)
        both = isinstance(old, dict) and isinstance(section, dict)
        written[name] = dict(old or {}, **section) if both else section
    return RlSpec.model_validate(written)
