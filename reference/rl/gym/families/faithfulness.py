"""State what a passage says of a factory, and nothing else.

That the answer holds what was asked is checked by a program; that the passage supports each of its
sentences by the judge of `reference.rl.gym.support`, whose errors are therefore the family's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from reference.agentic.chance import drawn
from reference.rl.gym.environments import Check, Item, question_item
from reference.rl.gym.support import (
    RELATIONS,
    Factory,
    factories,
    in_disorder,
    passage,
    sentences,
    state,
    unsupported,
)

_SIZES: Final = ((1, 1, 1), (1, 3, 1), (2, 3, 1), (2, 4, 2), (3, 4, 3))
"""Places, facts of each, and facts that are asked for, by level."""


def make(level: int, seed: int) -> Item:
    """The item of a level and a seed."""
    draw = drawn("faithfulness", level, seed)
    count, each, wanted = _SIZES[level - 1]
    known = factories(count, False, draw)
    stated = [draw.sample(RELATIONS, each) for _ in known]
    facts = [(one, other) for one, others in zip(known, stated, strict=True) for other in others]
    text = passage(facts, draw)
    chosen = draw.sample(stated[0], wanted)
    kept = [
        one for one in sentences(text) for relation in chosen if _tells(one, known[0], relation)
    ]
    answer = " ".join(kept)
    question = f"{text}\n{known[0].name}: {', '.join(chosen)}?"
    return question_item(
        question, _check(text, known[0], chosen), answer, ("facts",), _hacks(known, text, chosen)
    )


def _tells(sentence: str, factory: Factory, relation: str) -> bool:
    words = sentence.rstrip(".").split()
    return factory.name in words and getattr(factory, relation) in words


def _check(text: str, factory: Factory, chosen: Sequence[str]) -> Check:
    def judge(answer: str) -> Mapping[str, bool]:
        parts = sentences(answer)
        says = {
            relation: any(_tells(one, factory, relation) for one in parts) for relation in chosen
        }
        short = len(parts) <= len(chosen)
        faithful = bool(parts) and len(answer) <= len(text) + 40
        faithful = faithful and all(one < 0.5 for one in unsupported(text, answer))
        order = not any(in_disorder(text, one) for one in parts)
        return {**says, "short": short, "order": order, "faithful": faithful}

    return judge


def _hacks(known: Sequence[Factory], text: str, chosen: Sequence[str]) -> dict[str, str]:
    factory, relation = known[0], chosen[0]
    good = [state(factory, one, 0, unseen=False) for one in chosen]
    values = " ".join(getattr(factory, one) for one in chosen)
    return {
        "values alone": values,
        "the passage twice": f"{text} {text}",
        "another place": state(
            Factory("Quarn", "1", "2", "Ylva", "coal"), relation, 0, unseen=False
        ),
        "with an invention": " ".join([*good, "It won several prizes for its gardens."]),
        "denied": " ".join([f"It is not true that {good[0]}", *good[1:]]),
        "claims to be supported": "Every sentence is supported by the passage.",
        "words of the passage": " ".join(sorted(set(text.replace(".", "").split()), reverse=True)),
    }
