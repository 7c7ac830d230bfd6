"""Storages and products of a few lines, counted by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from reference.shapes.count import DEVICE, pretended
from reference.shapes.watch import Pass, Storage, Watch, fullest

KIB = 1024


@pytest.fixture
def watch() -> Iterator[Watch]:
    with pretended(0, 2), Watch(lambda: None, lambda: "here") as made:
        yield made


def block() -> torch.Tensor:
    """1 KiB."""
    return torch.empty(KIB // 4, device=DEVICE)


def alive(watch: Watch) -> int:
    return sum(one.bytes for one in watch.every if one.died is None)


def test_a_storage_lives_as_long_as_its_last_tensor(watch: Watch) -> None:
    whole = block()
    part = whole[:16]
    del whole
    assert alive(watch) == KIB
    del part
    assert alive(watch) == 0


def test_torch_does_not_remember_storages_that_were_put_into_tensors(watch: Watch) -> None:
    whole = block()
    other = torch.empty(0, device=DEVICE).set_(whole.untyped_storage(), 0, (4,), (1,))
    assert alive(watch) == KIB
    del whole, other
    assert alive(watch) == 0


def test_the_device_is_fullest_where_most_is_alive_whatever_a_host_holds(watch: Watch) -> None:
    one, two = block(), block()
    away = torch.empty_like(one, device="cpu").copy_(one)
    del one
    three = block()
    at = fullest(watch.every, 0)
    there = [held for held in watch.every if held.alive(at) and not held.host]
    assert sum(held.bytes for held in there) == 2 * KIB
    assert [held.host for held in watch.every] == [False, False, True, False]
    del two, three, away


def test_a_copy_to_the_host_is_called_what_it_copies(watch: Watch) -> None:
    one = block()
    watch.every[0].name = "made there"
    away = torch.empty_like(one, device="cpu").copy_(one)
    assert [(held.name, held.copied) for held in watch.every] == [
        ("made there", False),
        ("made there", True),
    ]
    del away


def test_products_of_matrices_are_counted_and_those_with_vectors_are_not(watch: Watch) -> None:
    left, right = (torch.empty(size, device=DEVICE) for size in ((3, 4), (4, 5)))
    assert (left @ right).shape == (3, 5)
    torch.addmm(torch.empty(5, device=DEVICE), left, right)
    torch.bmm(left.expand(2, 3, 4), right.expand(2, 4, 5))
    torch.mm(torch.empty(1, 4, device=DEVICE), right)
    assert watch.flop[None] == (1 + 1 + 2) * 2 * 3 * 4 * 5


def test_questions_for_numbers_are_answered_with_1(watch: Watch) -> None:
    del watch
    number = torch.empty(3, device=DEVICE)
    assert number.tolist() == [1.0, 1.0, 1.0]
    assert bool((number > 0).any()) is True
    assert int(torch.empty((), dtype=torch.int64, device=DEVICE)) == 1


def test_a_storage_is_there_from_its_birth_until_its_death() -> None:
    during: Pass = ("F", 0, 0)
    made = Storage("x", during, 1, host=False, key=0, born=3, died=5)
    assert [made.alive(event) for event in range(2, 7)] == [False, True, True, False, False]
