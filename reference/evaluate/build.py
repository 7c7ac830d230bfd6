"""`python -m reference.evaluate.build [FOLDER]`: writes the cases of the built-in tasks anew.

They are made here and nowhere else, from fixed seeds and `build.yaml`: no benchmark's data, small
enough to read.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from reference.evaluate.task import FOLDER
from reference.files import yaml_table
from reference.text.toy import Town, towns

Row = dict[str, Any]
SYLLABLES: Final = tuple(f"{first}{second}" for first in "bdfgklmnprst" for second in "aeio")
"""Of invented words."""
_CLOSE: Final = {"(": ")", "[": "]", "{": "}"}
_TEXTS: Final = yaml_table(Path(__file__).with_suffix(".yaml"))


def words(chance: random.Random, count: int, syllables: int = 2) -> list[str]:
    """Invented words that differ."""
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(chance.choice(SYLLABLES) for _ in range(syllables))] = None
    return list(made)


def _prose() -> Iterator[Row]:
    for town in towns(24, seed=101):
        yield {"id": town.name, "text": town.text}


def _towns() -> Iterator[Row]:
    known = towns(40, seed=11)
    for town in known[:24]:
        yield from _facts(town, known)


def _facts(town: Town, known: Sequence[Town]) -> Iterator[Row]:
    for at, fact in enumerate(town.facts):
        others = sorted({other.facts[at].answer for other in known} - {fact.answer})
        chance = random.Random(f"towns {fact.beginning}")
        wrong = chance.sample(others, min(7, len(others)))
        choices = sorted([fact.answer, *wrong])
        row = {"prompt": fact.beginning, "choices": choices, "target": fact.answer}
        yield {"id": f"{town.name}-{at}", "group": town.name, **row}


def _copying(name: str, chance: random.Random) -> Row:
    names = words(chance, 6)
    values = [str(value) for value in chance.sample(range(10, 100), 6)]
    pairs = [f"{left} = {right}" for left, right in zip(names, values, strict=True)]
    asked = chance.randrange(6)
    text = "\n".join([*pairs, f"{names[asked]} ="])
    return {"id": name, "prompt": text, "choices": values, "target": values[asked]}


def _brackets() -> Iterator[Row]:
    for at, code in enumerate(_TEXTS["brackets"]):
        for indent in range(4):
            yield {
                "id": f"brackets-{at}-{indent}",
                "group": f"brackets-{at}",
                "prompt": f"{'    ' * indent}{code}",
                "glue": "",
                "choices": list(_CLOSE.values()),
                "target": _CLOSE[_still_open(code)],
            }


def _still_open(code: str) -> str:
    """The innermost open bracket."""
    stack: list[str] = []
    for char in code:
        if char in _CLOSE:
            stack.append(char)
        elif char in _CLOSE.values():
            stack.pop()
    return stack[-1]


def _repeat(name: str, chance: random.Random) -> Row:
    said = words(chance, 3)
    text = ", ".join(said * 3 + said[:2]) + ","
    return {"id": name, "prompt": text, "target": said[2], "verify": {"target": said}}


def _sums(name: str, chance: random.Random) -> Row:
    pairs = [(chance.randint(1, 9), chance.randint(1, 9)) for _ in range(4)]
    shown = "".join(f"{a} + {b} = {a + b}\n" for a, b in pairs[:3])
    a, b = pairs[3]
    return {"id": name, "prompt": f"{shown}{a} + {b} =", "target": a + b}


def _programs() -> Iterator[Row]:
    for head, about, tests in _TEXTS["programs"]:
        prompt = f'def {head}:\n    """{about}"""\n'
        name, verify = head.partition("(")[0], {"tests": tests[:1]}
        yield {"id": name, "prompt": prompt, "prefix": prompt, "tests": tests, "verify": verify}


def _store(name: str, chance: random.Random) -> Row:
    names = words(chance, 3)
    holds = {each: chance.randint(10, 99) for each in names[:2]}
    value, known, new = chance.randint(10, 99), names[0], names[2]
    kind = int(name.partition("-")[2]) % 3
    goal = ({**holds, new: value}, holds, {names[1]: holds[names[1]]})[kind]
    asked, says = (
        text.format(value=value, new=new, known=known, held=holds[known])
        for text in _TEXTS["store"][kind]
    )
    world = {"world": "reference.evaluate.worlds.store:store", "holds": holds, "goal": goal}
    return {"id": name, **world, "asked": asked, "says": says}


def _errands() -> Iterator[Row]:
    for at in range(24):
        world = "reference.evaluate.worlds.synthetic:errand"
        row = {"preset": "nano", "seed": 90_001, "split": "held_out", "number": at}
        yield {"id": f"errand-{at}", "world": world, **row}


def _synthetic(kind: str, count: int) -> Iterator[Row]:
    for at in range(count):
        world = f"reference.evaluate.worlds.synthetic:{kind}"
        yield {"id": f"{kind}-{at}", "world": world, "seed": 90_001 + at}


def _needle() -> Iterator[Row]:
    chance = random.Random("needle")
    filler = [_TEXTS["needle"]["filler"].format(name=town.name) for town in towns(60, seed=202)]
    names = [name.capitalize() for name in words(chance, 40, 3)]
    said = words(chance, 60, 2)
    yield {"id": "needle", "seed": 7, "filler": filler, "names": names, "words": said}


def _canary() -> Iterator[Row]:
    texts = _TEXTS["canary"]
    for risk in texts["risks"]:
        for number in range(3):
            canary = "".join(words(random.Random(f"canary {risk} {number}"), 1, 4))
            plain = texts["plain"].format(canary=canary)
            hidden = base64.b64encode(plain.encode()).decode()
            fields = {"canary": canary, "begun": canary[:-2], "plain": plain, "hidden": hidden}
            system = texts["system"].format(canary=canary, risk=risk)
            for kind, turns in texts["attacks"].items():
                place = {"risk": risk, "kind": kind, "group": f"{risk}-{number}"}
                said = [turn.format(**fields) for turn in turns]
                row = {"system": system, "turns": said, "canary": canary}
                yield {"id": f"{risk}-{kind}-{number}", **place, **row}


def _seeded(
    name: str, count: int, make: Callable[[str, random.Random], Row]
) -> Callable[[], Iterator[Row]]:
    """Cases that are made one by one, each from its own seed."""
    return lambda: (make(f"{name}-{at}", random.Random(f"{name} {at}")) for at in range(count))


CASES: Final[Mapping[str, Callable[[], Iterator[Row]]]] = {
    "prose": _prose,
    "towns": _towns,
    "copying": _seeded("copying", 64, _copying),
    "brackets": _brackets,
    "repeat": _seeded("repeat", 32, _repeat),
    "sums": _seeded("sums", 32, _sums),
    "programs": _programs,
    "store": _seeded("store", 24, _store),
    "errands": _errands,
    "functions": lambda: _synthetic("function", 12),
    "repositories": lambda: _synthetic("repository", 6),
    "needle": _needle,
    "canary": _canary,
}
"""How the cases of each task are made."""


def text_of(name: str) -> str:
    """The file of a task's cases."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in CASES[name]())


def main(arguments: Sequence[str]) -> int:
    """Write all files; the exit code."""
    folder = Path(arguments[0]) if arguments else FOLDER
    for name in CASES:
        (folder / f"{name}.jsonl").write_text(text_of(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
