"""Tasks from kinds and seeds: equal seeds give equal tasks, to the byte.

Right values come from the kind's own solution, which is our code and runs in this process. Hidden
inputs are the kind's edges and inputs drawn by chance, as property-based tests draw them; the
shown examples are drawn, too (taken out of the edges where there is nothing else), and are in no
hidden test.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from typing import Any

from reference.agentic.code.kind import Arguments, Kind, kinds
from reference.agentic.code.task import Example, Task

SHOWN, HIDDEN = 3, 20
"""Examples that are told, and the most hidden tests."""
_TRIES = 200


def generate(seed: int, names: Sequence[str] | None = None) -> Task:
    """The task of a seed: of one of these kinds, or of any."""
    draw = random.Random(f"code task {seed}")
    known = kinds()
    return make(known[draw.choice(tuple(names or known))], seed)


def make(kind: Kind, seed: int) -> Task:
    """The task of this kind and seed."""
    draw = random.Random(f"code task {kind.name} {seed}")
    chosen = choose(kind, seed)
    solution = kind.solution(chosen)
    inputs = list(_inputs(kind, draw))
    others = [one for one in inputs if one not in kind.edges]
    shown = draw.sample(others if len(others) > SHOWN else inputs, SHOWN)
    hidden = [one for one in inputs if one not in shown]
    right = function(solution, kind.name)
    from_inputs = [
        tuple(Example(one, right(*copy.deepcopy(one))) for one in some) for some in (shown, hidden)
    ]
    return Task(
        id=f"{kind.name}-{seed}",
        entry=kind.name,
        signature=kind.signature,
        statement=_filled(kind.statement, chosen),
        examples=from_inputs[0],
        hidden=from_inputs[1],
        difficulty=kind.difficulty,
        tags=kind.tags,
        solution=solution,
        tolerance=kind.tolerance,
    )


def mutants(kind: Kind, seed: int) -> tuple[str, ...]:
    """Wrong solutions of the task of this kind and seed."""
    return kind.wrong(choose(kind, seed))


def choose(kind: Kind, seed: int) -> dict[str, Any]:
    """The parameters of the texts; a kind whose parameters go together names one value each."""
    draw = random.Random(f"code parameters {kind.name} {seed}")
    return {name: draw.choice(values) for name, values in kind.choices.items()}


def function(text: str, entry: str) -> Any:
    """The function of a text of ours; never of a model's."""
    space: dict[str, Any] = {}
    exec(compile(text, entry, "exec"), space)
    return space[entry]


def _inputs(kind: Kind, draw: random.Random) -> Iterator[Arguments]:
    """Edges first, then what chance gives, each once."""
    seen: set[str] = set()
    drawn = (kind.inputs(draw) for _ in range(_TRIES))
    for arguments in (*kind.edges, *drawn):
        if len(seen) < SHOWN + HIDDEN and repr(arguments) not in seen:
            seen.add(repr(arguments))
            yield arguments


def _filled(text: str, chosen: dict[str, Any]) -> str:
    for name, value in chosen.items():
        text = text.replace(f"${name}", str(value))
    return text
