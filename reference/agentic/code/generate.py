"""Programming tasks from kinds and seeds: equal seeds give equal tasks, to the byte.

The kind's own solution gives the expected values; it is our code and runs in this process. Hidden
inputs are the kind's edges and inputs drawn as in property-based tests. The shown examples are
drawn too (from the edges where there is nothing else) and are in no hidden test.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from reference.agentic.code.problems import Arguments, ProblemKind, problem_kinds


class CallExample(NamedTuple):
    """Arguments of one call, and the right value."""

    arguments: tuple[Any, ...]
    expected: Any

    def call(self, entry: str) -> str:
        """The call as Python text; the arguments are plain values."""
        return f"{entry}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class CodeTask:
    """What the model is asked, and the tests that decide."""

    id: str
    entry: str
    """Name of the function."""
    signature: str
    statement: str
    examples: tuple[CallExample, ...]
    """Shown to the model."""
    hidden: tuple[CallExample, ...]
    """The tests that decide; none has the arguments of an example."""
    difficulty: int
    """From 1 to 5, as its author sees it; pass@k measures what models find hard."""
    tags: tuple[str, ...] = ()
    solution: str = ""
    """A text that passes all; empty where none is known."""


def table_of_examples(task: CodeTask) -> str:
    """A function that knows the shown examples and nothing else."""
    known = {repr(example.arguments): example.expected for example in task.examples}
    return f"def {task.entry}(*words):\n    return {known!r}.get(repr(words))\n"


SHOWN, HIDDEN = 3, 20
"""Examples in the statement, and the largest number of hidden tests."""
_TRIES = 200


def generate(seed: int) -> CodeTask:
    """The task of a seed, of any kind."""
    kinds = tuple(problem_kinds().values())
    return make(Random(f"code task {seed}").choice(kinds), seed)


def make(kind: ProblemKind, seed: int) -> CodeTask:
    """The task of this kind and seed."""
    draw = Random(f"code task {kind.name} {seed}")
    chosen = _parameters(kind, seed)
    solution = kind.solved(chosen)
    right = function(solution, kind.name)
    inputs = list(_inputs(kind, draw))
    drawn = [arguments for arguments in inputs if arguments not in kind.edges]
    shown = draw.sample(drawn if len(drawn) > SHOWN else inputs, SHOWN)

    def tests(some: Sequence[Arguments]) -> tuple[CallExample, ...]:
        return tuple(CallExample(given, right(*copy.deepcopy(given))) for given in some)

    return CodeTask(
        id=f"{kind.name}-{seed}",
        entry=kind.name,
        signature=kind.signature,
        statement=_filled(kind.statement, chosen),
        examples=tests(shown),
        hidden=tests([arguments for arguments in inputs if arguments not in shown]),
        difficulty=kind.difficulty,
        tags=kind.tags,
        solution=solution,
    )


def mutants(kind: ProblemKind, seed: int) -> tuple[str, ...]:
    """Wrong solutions of the task of this kind and seed."""
    return kind.wrong(_parameters(kind, seed))


def function(text: str, entry: str) -> Any:
    """The function that a text of ours defines; never use it for a model's text."""
    names: dict[str, Any] = {}
    exec(compile(text, entry, "exec"), names)
    return names[entry]


def candidates(task: CodeTask, seed: int) -> tuple[str, ...]:
    """Solutions for a rule-based policy that cannot write code, in the order in which it tries
    them: the right one, two mutants, and a table of the examples. Of a generated task only."""
    name, _, number = task.id.rpartition("-")
    draw = Random(f"candidates {task.id} {seed}")
    wrong = mutants(problem_kinds()[name], int(number))
    texts = [
        task.solution,
        *draw.sample(wrong, min(2, len(wrong))),
        table_of_examples(task),
    ]
    draw.shuffle(texts)
    return tuple(texts)


def hints(task: CodeTask, seed: int) -> dict[str, object]:
    """Metadata for the rule-based skill `program`."""
    return {"kind": "program", "candidates": candidates(task, seed)}


def _parameters(kind: ProblemKind, seed: int) -> dict[str, Any]:
    """The parameters of the texts; parameters that belong together have one value each."""
    draw = Random(f"code parameters {kind.name} {seed}")
    return {name: draw.choice(values) for name, values in kind.choices.items()}


def _inputs(kind: ProblemKind, draw: Random) -> Iterator[Arguments]:
    """The edges, then drawn arguments, without repetition."""
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
