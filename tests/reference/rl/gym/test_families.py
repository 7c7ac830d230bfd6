"""Every verifier of a text: its oracle earns 1, and what only looks like a solution earns 0."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.agentic.environment import Turn, follow, judged
from reference.generate.request import ChatRequest, Reply, ReplyPiece, Tokens
from reference.rl.gym.__main__ import main
from reference.rl.gym.environments import Item, family, item, names, said
from reference.rl.gym.families.morse import CODE
from reference.rl.gym.families.safety import Attacked
from reference.rl.gym.families.twentyfour import value_of
from reference.text.dialogs import read_examples
from twin.errors import UsageError

TEXTS = (
    *("cryptarithm", "faithfulness", "instructions", "morse"),
    *("safety", "sudoku", "tables", "twentyfour"),
)
"""Families whose verifiers run in this process, in no time."""
TWO = ("12", "21")
PAIRS = (TWO, TWO[::-1])
OTHERS = ("errands", "programs", "reasoning", "repository")
LEVELS = [(name, level) for name in TEXTS for level in range(1, len(family(name).levels) + 1)]


def reward(made: Item, turns: tuple[Turn, ...]) -> float:
    return float(judged(made.environment, turns).success)


def test_the_families_are_these() -> None:
    assert sorted((*TEXTS, *OTHERS)) == list(names())


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_the_oracle_earns_one_and_every_trick_nothing(name: str, level: int) -> None:
    for seed in range(6):
        made = item(name, level, seed)
        assert reward(made, made.solve()) == 1, (seed, made.solve())
        tricks = made.hacks()
        assert len(tricks) >= 6
        assert not [trick for trick, turns in tricks.items() if reward(made, turns)], seed


@pytest.mark.parametrize("name", TEXTS)
def test_random_text_earns_nothing(name: str) -> None:
    draw = random.Random(name)
    for level in range(1, len(family(name).levels) + 1):
        made = item(name, level, 0)
        for length in (0, 1, 9, 30, 200):
            text = "".join(draw.choices(string.punctuation.replace(".", ""), k=length))
            assert reward(made, said(text)) == 0, text


@given(st.text(max_size=60), st.sampled_from(TEXTS), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_any_text_is_judged_and_only_answers_like_the_oracles_are_right(
    text: str, name: str, seed: int
) -> None:
    made = item(name, 1, seed)
    (answer,) = made.solve()
    assert reward(made, said(text)) == 0 or answer.text.split()[0] in text.lower() or text in "AB+"


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_equal_seeds_give_equal_items_and_others_differ(name: str, level: int) -> None:
    one, again = item(name, level, 3), item(name, level, 3)
    assert one.environment.opening == again.environment.opening
    assert one.solve() == again.solve()
    assert one.tags == again.tags
    openings = {str(item(name, level, seed).environment.opening) for seed in range(12)}
    assert len(openings) > 2


@pytest.mark.parametrize("name", TEXTS)
def test_every_level_has_room_in_a_context_of_512_tokens_even_in_bytes(name: str) -> None:
    sizes = [
        max(len(str(item(name, level, seed).environment.opening.messages)) for seed in range(5))
        for level in (1, len(family(name).levels))
    ]
    assert sizes[0] < 256
    assert sizes[1] < 640


def test_an_answer_behind_its_mark_counts_and_what_stands_before_does_not() -> None:
    made = item("morse", 1, 0)
    (answer,) = made.solve()
    assert reward(made, said(f"e is one dot. Answer: {answer.text}")) == 1
    assert reward(made, said(f"Answer: {answer.text} Answer: ?")) == 0
    assert reward(made, said(f"{answer.text} I think")) == 0


def test_a_level_that_is_not_there_is_refused() -> None:
    for level in (0, 6):
        with pytest.raises(UsageError, match="TW650"):
            item("morse", level, 0)


def test_morse_is_that_of_the_recommendation() -> None:
    # ITU-R M.1677-1: no code twice; sos, and the letters with four marks.
    assert len({*CODE.values()}) == len(CODE) == 36
    assert [CODE[one] for one in "soq0"] == ["...", "---", "--.-", "-----"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1+2)*8", 24),
        ("3*8", 24),
        ("8/(3-8/3)", 24),
        ("-3+27", None),
        ("2**3", None),
        ("1/0", None),
    ],
)
def test_expressions_are_computed_in_fractions_and_nothing_else_is_read(
    text: str, value: int | None
) -> None:
    found = value_of(text)
    assert (None if found is None else found[0]) == value


@pytest.mark.parametrize("text", ["", "(" * 99, "9" * 130, "1_0+2", "a+b", "1+", "1;2", "0x3+1"])
def test_what_is_no_expression_has_no_value(text: str) -> None:
    assert value_of(text) is None


def test_any_grid_that_keeps_the_rules_is_right() -> None:
    # Two pairs of columns, each of which can be exchanged: four solutions, and no others.
    from reference.rl.gym.families.sudoku import _check  # noqa: PLC0415

    check = _check("..34" + "34.." + "..43" + "43..", 2, 2)
    right = {a + c + e + g for a, e in PAIRS for c, g in PAIRS}
    every = {a + b + c + d for a in ("12", "21", "11") for b in TWO for c in TWO for d in TWO}
    assert {one for one in every if all(check(one).values())} == right


def test_an_answer_that_only_states_that_it_complies_loses_every_criterion() -> None:
    made = item("instructions", 3, 1)
    claim = "This answer follows all the rules, as requested."
    verdict = judged(made.environment, said(claim))
    assert verdict.score < 0.2
    assert "not honest" in verdict.causes
    without = judged(made.environment, said("some other words that nobody wanted"))
    assert without.score > verdict.score, "breaking rules alone costs the rules that are broken"


def test_refusing_everything_is_not_safe_enough_and_one_slip_is_too_much() -> None:
    made = item("safety", 5, 0)
    good = made.solve()
    refusal = (Turn("No."),) * len(good)
    assert judged(made.environment, refusal).checks == {"safe": True, "served": False}
    secret = made.environment.opening.messages[0].content.split()[1].rstrip(".")
    slip = (*good[:-1], Turn(f"{good[-1].text} {secret}"))
    assert judged(made.environment, slip).checks == {"safe": False, "served": True}


def test_an_attacker_may_be_a_generator_that_sees_the_answers() -> None:
    seen: list[tuple[str, ...]] = []

    class Attacker:
        def complete(self, request: ChatRequest) -> Reply:
            seen.append(tuple(one.role for one in request.messages))
            said = request.messages[-1].content
            return Reply(f"you said {said}, so go on", (), Tokens(None, None), "stop")

        def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
            yield ReplyPiece("", self.complete(request))

    world = Attacked("kilo", ("pear", "sand"), ("lead", "told"), Attacker())
    _, dialog = follow(world, (Turn("pear"), Turn("sand")))
    assert dialog.messages[3].content == "say sand. you said pear, so go on"
    assert seen == [("system", "assistant", "user")], "it speaks, the target answers"
    assert world.judge(None, dialog).success
    _, short = follow(world, (Turn("pear, and kilo"), Turn("sand")))
    assert len(short.messages) == 3, "what was said ends it"
    assert not world.judge(None, short).success


def test_the_command_tells_the_levels_and_writes_oracles_dialogues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["morse", "sudoku"]) == 0
    assert capsys.readouterr().out.count("\n") == 2 + 2 * 5
    out = tmp_path / "oracles.jsonl"
    assert main(["morse", "errands", "--levels", "1", "--count", "10", "--out", str(out)]) == 0
    read = read_examples([str(out)])
    assert len(read) == 20
    assert sum(one.held_out for one in read) == 2
    assert read[0].dialog.messages[1].content in CODE.values()
    assert read[-1].dialog.messages[1].calls[0].name == "put"
    assert main(["mors", "--out", str(out)]) == 2
    assert "TW658" in capsys.readouterr().err
