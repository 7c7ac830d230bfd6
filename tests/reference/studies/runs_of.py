"""Outcomes made up for tests: no training."""

from __future__ import annotations

from collections.abc import Sequence

from reference.studies.runs import RunOutcome


def outcome(
    final: float = 3.0,
    *,
    held_out: Sequence[tuple[int, float]] = (),
    max_logits: Sequence[float] = (),
    clipped_heads: Sequence[int] = (),
    steps: int = 10,
    tokens_per_step: int = 100,
    entropies: dict[str, tuple[float, ...]] | None = None,
    flop_per_token: float = 6e6,
) -> RunOutcome:
    """A run that ended at `final`, or with these evaluations."""
    return RunOutcome(
        ended="done",
        tokens_per_step=tokens_per_step,
        flop_per_token=flop_per_token,
        losses=tuple(7.0 - step / steps for step in range(steps)),
        max_logits=tuple(max_logits) or (1.0,) * steps,
        clipped_heads=tuple(clipped_heads) or (0,) * steps,
        imbalances=(1.5,) * steps,
        held_out=tuple(held_out) or ((steps // 2, 5.0), (steps, final)),
        bits_per_byte=final / 2,
        entropies=entropies or {"layers.0.attention.q_up.weight": (0.9,)},
        seconds=1.0,
    )
