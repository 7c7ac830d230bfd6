"""Held-out text: chosen by name, and unknown to training."""

from __future__ import annotations

import random

import pytest

from reference.text.documents import Document, read_corpus
from reference.text.spec import DataSpec
from reference.text.split import copied_shares, split
from twin.errors import UsageError


def texts(count: int) -> list[Document]:
    """Documents of random words, 1000 characters each."""
    chance = random.Random(7)
    return [
        Document(f"{place:04d}.txt", "".join(chance.choices("abcdefgh \n", k=1000)))
        for place in range(count)
    ]


def names(documents: tuple[Document, ...]) -> set[str]:
    return {document.name for document in documents}


def test_every_document_is_on_one_side_and_about_the_share_is_held_out() -> None:
    documents = texts(2000)
    found = split(documents, 0.1)
    assert not found.near_copies
    assert names(found.training) | names(found.held_out) == names(tuple(documents))
    assert not names(found.training) & names(found.held_out)
    assert 160 < len(found.held_out) < 240  # 200 expected, deviation 13


def test_more_documents_move_none_of_the_others() -> None:
    documents = texts(600)
    few, many = split(documents[:300], 0.1), split(documents, 0.1)
    assert names(few.held_out) <= names(many.held_out)
    assert names(few.training) <= names(many.training)


def test_the_text_has_no_say_in_who_is_held_out() -> None:
    documents = texts(300)
    others = [Document(one.name, one.text[::-1]) for one in documents]
    assert names(split(documents, 0.1).held_out) == names(split(others, 0.1).held_out)


def test_the_held_out_order_is_not_that_of_the_names() -> None:
    held_out = [one.name for one in split(texts(600), 0.5).held_out]
    assert held_out != sorted(held_out)


def test_a_held_out_document_that_training_has_nearly_whole_belongs_to_neither_side() -> None:
    documents = texts(300)
    victim = split(documents, 0.1).held_out[0]
    changed = f"{victim.text[:300]}x{victim.text[301:600]}y{victim.text[601:]}"
    name = next(f"copy-{n}" for n in range(99) if _trains(f"copy-{n}", documents))
    found = split([*documents, Document(name, changed)], 0.1)
    assert names(found.near_copies) == {victim.name}
    assert victim.name not in names(found.training) | names(found.held_out)


def _trains(name: str, documents: list[Document]) -> bool:
    return name in names(split([*documents, Document(name, "text")], 0.1).training)


def test_the_copied_share_counts_runs_of_64_bytes() -> None:
    a, b = "a" * 63 + "".join(chr(33 + n % 89) for n in range(137)), "z" * 300
    whole, half, none, short = copied_shares(
        [Document("t", f"--{a}--"), Document("u", "-" * 99)],
        [Document("w", a), Document("h", a + b), Document("n", b), Document("s", "z" * 63)],
    )
    assert whole == 1.0
    assert half == pytest.approx((200 - 63) / (500 - 63))
    assert (none, short) == (0.0, 0.0)


def test_runs_do_not_join_two_documents() -> None:
    text = "".join(chr(33 + n % 89) for n in range(64))
    parts = [Document("a", text[:32]), Document("b", text[32:])]
    assert copied_shares(parts, [Document("c", text)]) == [0.0]


@pytest.mark.slow
def test_no_document_of_the_standard_library_is_both_trained_on_and_held_out() -> None:
    found = split(read_corpus(DataSpec()).documents, 0.05)
    training = {document.text.strip() for document in found.training}
    assert found.held_out
    assert not training & {document.text.strip() for document in found.held_out}
    assert max(copied_shares(found.training, found.held_out)) <= 0.5


def test_nothing_is_held_out_where_nobody_asks() -> None:
    assert split(texts(1), 0.0).training == tuple(texts(1))


def test_of_few_documents_one_is_held_out_at_least() -> None:
    assert len(split(texts(2), 0.001).held_out) == 1
    assert len(split(texts(2), 0.5).training) == 1


def test_of_long_texts_the_whole_is_searched() -> None:
    chance = random.Random(3)
    long = [Document(f"{n}", "".join(chance.choices("abcdefgh", k=200_000))) for n in range(4)]
    pieces = [Document("x", one.text[place : place + 99]) for one in long for place in (0, 199_901)]
    pieces.append(Document("y", long[1].text[99_000:100_000] + long[2].text[:1000]))
    assert copied_shares(long, pieces)[:-1] == [1.0] * 8
    assert copied_shares(long, pieces)[-1] == (2 * (1000 - 63)) / (2000 - 63)
    assert copied_shares(long[:1], pieces)[-1] == 0.0


@pytest.mark.parametrize("documents", [texts(1), [Document(n, "copy " * 99 + n) for n in "ab"]])
def test_text_that_cannot_be_held_out_is_told(documents: list[Document]) -> None:
    with pytest.raises(UsageError) as raised:
        split(documents, 0.1)
    (problem,) = raised.value.problems
    assert problem.code == "TW224"
    assert "data.held_out to 0" in problem.hint
