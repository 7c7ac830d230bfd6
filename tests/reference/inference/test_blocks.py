"""Blocks are held, shared, kept and reused as counted; keys stand for whole prefixes."""

from __future__ import annotations

from random import Random

import pytest

from reference.inference.forward import BlockPool, chain
from reference.inference.scheduler import TextDecoder
from tests.reference.inference.small import asked, engine, ids, run


def test_a_key_stands_for_all_tokens_before_it() -> None:
    first, other = chain(b"", [1, 2]), chain(b"", [2, 1])
    assert first != other
    assert chain(first, [3, 4]) != chain(other, [3, 4])
    assert chain(first, [1, 2]) != first


def test_equal_blocks_at_other_places_are_not_shared() -> None:
    prompts = ["y" * 16 + "x" * 40, "x" * 40]
    wanted = []
    for prompt in prompts:
        single = engine()
        single.add(asked(prompt))
        wanted.append(ids(run(single), 0))
    served = engine()
    found = []
    for prompt in prompts:
        number = served.add(asked(prompt))
        updates = run(served)
        assert {one.cached for one in updates} == {0}
        found.append(ids(updates, number))
    assert found == wanted


def test_a_known_prompt_of_whole_blocks_leaves_its_last_one_to_compute() -> None:
    served = engine()
    said = []
    for _ in range(2):
        number = served.add(asked("whole blocks of 16 tokens each."[:16] * 3))
        updates = run(served)
        said.append(ids(updates, number))
    assert {one.cached for one in updates} == {32}
    assert said[0] == said[1]


def test_the_least_recently_used_prefix_makes_room_first_and_its_end_before_its_beginning() -> None:
    pool = BlockPool(3)
    blocks = [pool.take() for _ in range(3)]
    for block, key in zip(blocks, (b"a", b"b", b"c"), strict=True):
        assert block is not None
        pool.name(block, key)
    pool.give_back([blocks[2]])  # type: ignore[list-item]
    pool.give_back(blocks[:2])  # type: ignore[arg-type]
    assert (pool.used, pool.kept, pool.available) == (0, 3, 3)
    for gone, left in ((b"c", b"ab"), (b"b", b"a"), (b"a", b"")):
        pool.take()
        assert pool.find(gone) is None
        assert all(pool.find(bytes([key])) is not None for key in left)
    assert pool.take() is None


@pytest.mark.parametrize("seed", range(5))
def test_no_block_is_lost_or_given_twice(seed: int) -> None:
    random, pool = Random(seed), BlockPool(8)
    held: list[int] = []
    for step in range(300):
        act = random.random()
        if act < 0.45 and (block := pool.take()) is not None:
            assert block not in held
            held.append(block)
            pool.name(block, bytes([step % 251, random.randrange(3)]))
        elif act < 0.6 and held:
            again = random.choice(held)
            pool.share(again)
            held.append(again)
        elif held:
            pool.give_back([held.pop(random.randrange(len(held)))])
        if random.random() < 0.02:
            pool.forget_all()
        assert pool.used == len(set(held))
        assert pool.available == 8 - len(set(held))


def test_text_holds_back_what_may_become_a_stop_string_and_half_characters() -> None:
    words = TextDecoder(["END", "\n\n"])
    assert [words.add(piece) for piece in (b"a", b"E", b"N", b"x", b"\xc3", b"\xa9", b"\n")] == [
        *("a", "", "", "ENx", "", "é", ""),
    ]
    assert words.add(b"b") == "\nb"
    assert words.add(b" EN") == " "
    assert words.add(b"D more") == ""
    assert words.stopped
    assert words.end() == ""
    assert TextDecoder(["END"]).end() == ""
