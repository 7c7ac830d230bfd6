"""Patches to choose from, for a rule-based policy that cannot write code (see
`reference.agentic.code.candidates`)."""

from __future__ import annotations

import random
from dataclasses import asdict

from reference.agentic.software.generate import Repository


def candidates(repository: Repository, seed: int) -> tuple[dict[str, str], ...]:
    """Patches as arguments of `edit_file`, in the order in which they are tried: the gold one and
    two that break something else."""
    draw = random.Random(f"candidates {repository.id} {seed}")
    wrong = draw.sample(repository.wrong, min(2, len(repository.wrong)))
    some = [asdict(one) for one in (repository.gold, *wrong)]
    draw.shuffle(some)
    return tuple(some)


def hints(repository: Repository, seed: int) -> dict[str, object]:
    """What the policy `program` of the embedded rules goes by."""
    return {"kind": "program", "candidates": candidates(repository, seed)}
