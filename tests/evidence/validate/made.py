"""Answers, rows and residuals made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twin.evidence.validate.answer import RowResult
from twin.evidence.validate.suite import PublishedRow
from twin.reports.interval import Circumstances, Residual

AT = Circumstances(
    gpu="H100",
    peak=989e12,
    software="megatron-core",
    precision="bf16",
    experts=False,
    gpus=64,
    host=0.0,
    exchange=0.1,
    memory=0.1,
)


def answer(name: str, error: float | None = 0.0, **changes: Any) -> RowResult:
    """A check row that took 2 s, and is missed by so much; of no error there is no prediction."""
    usual = {
        "metric": "step_seconds",
        "use": "check",
        "category": "train_step",
        "source": "some paper",
        "model": "llama3-70b",
        "gpu": "H100",
        "precision": "bf16",
        "gpus": 64,
        "reproducible": True,
        "measured": 2.0,
        "predicted": None if error is None else 2.0 * (1.0 + error),
        "status": "not_expressible" if error is None else "predicted",
        "reason": "nobody tells" if error is None else "",
        "flop": 1e15,
        "at": AT if error is not None else None,
    }
    return RowResult(name, **{**usual, **changes})


def residual(name: str, value: float, family: str = "", **changes: Any) -> Residual:
    """A residual of a row that was near a fitted one; each is a family of its own by default."""
    at = replace(AT, **{key: own for key, own in changes.items() if key in Circumstances.__slots__})
    rest = {key: own for key, own in changes.items() if key not in Circumstances.__slots__}
    usual = {"metric": "step_seconds", "fitted": False, "measured": 2.0, "flop": 1e15}
    return Residual(
        name, family or f"{name} | m | g | bf16", value=value, at=at, **{**usual, **rest}
    )


def step(
    name: str, seconds: float | None = 2.0, use: str = "check", **changes: Any
) -> PublishedRow:
    """A training row of a small GPT on 8 A100, played in a fraction of a second."""
    fields: dict[str, Any] = {
        "id": name,
        "category": "train_step",
        "use": use,
        "reproducible": True,
        "source": {"title": "Korthikanti et al. 2022, made"},
        "system": {"gpu": "A100-80GB", "gpus": 8, "network": "single node"},
        "model": "gpt-1.7b",
        "parallelism": {"tp": 8, "recompute": "full"},
        "precision": "BF16",
        "gbs": 4,
        "mbs": 4,
        "seq": 2048,
        "metrics": {} if seconds is None else {"step_s": seconds},
    }
    return PublishedRow({**fields, **changes}, {})
