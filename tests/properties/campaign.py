"""The standing attack at length: `python -m tests.properties.campaign FOLDER layouts 2000`.

Scenarios come in batches; the number of a batch is its seed. One line per scenario says what became
of it, and a batch that is in the file is not run again, so counts add up over runs."""

from __future__ import annotations

import json
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final, NamedTuple

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from tests.properties.attack import UNCHECKED, Command, Written, quicker, spoiled, written
from tests.properties.foreign import Spoiled, foreign
from tests.properties.laws import answered, checks, no_slower_with_a_faster_part
from tests.properties.searches import (
    best_of_all_splits,
    few,
    many,
    no_slower_stages,
    no_worse_split,
    tight,
)

BATCH: Final = 50
HANGS: Final = 120.0
"""Seconds of the core after which a scenario is given up."""


class Attack(NamedTuple):
    """What is drawn, and what each is asked."""

    drawn: st.SearchStrategy[Any]
    asks: Callable[[Any], Iterator[tuple[str, Callable[[], object]]]]


def _laws(attack: Written) -> Iterator[tuple[str, Callable[[], object]]]:
    yield from ((check.func.__name__, check) for check in checks(attack))


def _command(command: Command | Spoiled) -> Iterator[tuple[str, Callable[[], object]]]:
    yield " ".join(command.verb), partial(answered, command)


def _law(
    law: Callable[[Any], object],
) -> Callable[[Any], Iterator[tuple[str, Callable[[], object]]]]:
    return lambda case: iter([(law.__name__, partial(law, case))])


ATTACKS: Final = {
    "layouts": Attack(written(), _laws),
    "commands": Attack(spoiled(), _command),
    "files": Attack(foreign(), _command),
    "kinds": Attack(quicker(), _law(no_slower_with_a_faster_part)),
    "few-splits": Attack(few(), _law(best_of_all_splits)),
    "splits": Attack(many(), _law(no_worse_split)),
    "stages": Attack(tight(), _law(no_slower_stages)),
}


def asked(attack: Attack, case: Any) -> dict[str, Any]:
    """What became of one scenario: its seconds, what was asked, and what each broken law says."""
    begin, told, broken = process_time(), {}, {}
    signal.setitimer(signal.ITIMER_VIRTUAL, HANGS)
    try:
        for name, ask in attack.asks(case):
            told[name] = None
            try:
                told[name] = ask()
            except UnsatisfiedAssumption:  # the law asks of what is no plan, as of twice the batch
                continue
            except (AssertionError, TimeoutError) as error:
                broken[name] = str(error)[:2000]
            except Exception:  # noqa: BLE001 - the traceback is what is looked for
                broken[name] = traceback.format_exc()[-2000:]
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = round(process_time() - begin, 2)
    return {"case": case.text, "seconds": seconds, "told": told, "broken": broken}


def run(attack: Attack, number: int) -> list[dict[str, Any]]:
    """The lines of a batch."""
    lines: list[dict[str, Any]] = []

    @seed(number)
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=UNCHECKED,
    )
    @given(attack.drawn)
    def batch(case: Any) -> None:
        lines.append({"batch": number, **asked(attack, case)})

    batch()
    return lines


def stored(file: Path) -> list[dict[str, Any]]:
    """What earlier runs found."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tally(lines: list[dict[str, Any]]) -> str:
    """Counts over distinct scenarios."""
    cases = {line["case"]: line for line in lines}.values()
    broken = Counter(name for line in cases for name in line["broken"])
    codes = Counter(str(code) for line in cases for code in line["told"].values() if code)
    longest = max((line["seconds"] for line in cases), default=0)
    told = f"exit codes {dict(codes)}, broken: {dict(broken)}"
    return f"{len(cases)} scenarios, longest {longest} s, {told}"


def main(folder: str, name: str, many: str) -> None:
    """Batches until so many distinct scenarios are in the file."""
    file = Path(folder, f"{name}.jsonl")
    lines = stored(file)
    signal.signal(signal.SIGVTALRM, _hangs)
    batch = max((line["batch"] for line in lines), default=0)
    while len({line["case"] for line in lines}) < int(many):
        batch += 1
        lines += (found := run(ATTACKS[name], batch))
        with file.open("a") as out:
            out.writelines(json.dumps(line) + "\n" for line in found)
        print(tally(lines), flush=True)


def _hangs(*_: object) -> None:
    raise TimeoutError(f"no answer after {HANGS:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
