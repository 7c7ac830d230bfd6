"""The stream and its batches: nothing lost, nothing twice, the same from any place on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference.text.loader import IGNORED, Loader, windows
from reference.text.packing import Tokens, TokenStream, _mix, pack
from twin.errors import UsageError

END = 99
WHOLE = st.integers(1, 7)


def made(seed: int = 0, documents: int = 12) -> Tokens:
    """Documents of 0 to 40 ids below 99, each of which begins with its number."""
    chance = np.random.default_rng(seed)
    rows = [
        np.array([n, *chance.integers(0, END, chance.integers(0, 40))]) for n in range(documents)
    ]
    return pack(rows, END + 1, "digest")


TOKENS = made()
N = len(TOKENS)


def taken(loader: Loader, batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and targets of so many batches, in a row each."""
    pairs = [next(loader) for _ in range(batches)]
    tokens = torch.cat([tokens.flatten() for tokens, _ in pairs])
    return tokens, torch.cat([targets.flatten() for _, targets in pairs])


@pytest.mark.parametrize("seed", [0, 5])
def test_every_epoch_has_each_document_once_in_an_order_of_its_own(seed: int) -> None:
    stream = TokenStream(TOKENS, seed)
    orders = []
    for epoch in range(3):
        ids = stream.read(epoch * N, N)
        documents = np.split(ids, np.flatnonzero(ids == END) + 1)[:-1]
        orders.append([int(document[0]) for document in documents])
        assert sorted(map(tuple, documents)) == sorted(map(tuple, TOKENS))
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert orders[0] != list(range(12))


def test_seeds_give_different_orders() -> None:
    assert not np.array_equal(TokenStream(TOKENS, 0).read(0, N), TokenStream(TOKENS, 1).read(0, N))


def test_the_order_is_the_same_on_every_machine() -> None:
    ids = TokenStream(made(documents=6), 3).read(0, 1000)
    numbers = TokenStream(pack([np.array([n]) for n in range(6)], END + 1), 3).read(0, 12)[::2]
    assert numbers.tolist() == [5, 3, 0, 2, 1, 4]
    assert ids[0] == 5  # whatever the documents' lengths are


def test_mixing_is_splitmix64() -> None:
    """The first numbers of the published generator from the seed 1234567."""
    seeds = 1234567 + np.arange(3, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert _mix(seeds).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(start=st.integers(0, 3 * N), count=st.integers(1, 2 * N))
def test_any_stretch_of_the_stream_is_that_of_one_long_reading(start: int, count: int) -> None:
    whole = TokenStream(TOKENS, 4).read(0, 5 * N)
    assert np.array_equal(TokenStream(TOKENS, 4).read(start, count), whole[start : start + count])


def test_targets_are_the_next_tokens_of_the_text() -> None:
    loader = Loader(TOKENS, 7, 3, seed=2)
    tokens, targets = next(loader)
    assert tokens.shape == targets.shape == (3, 7)
    assert tokens.dtype == targets.dtype == torch.int64
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    whole = TokenStream(TOKENS, 2).read(0, 2 * N).tolist()
    for row in torch.cat((tokens, targets[:, -1:]), 1).tolist():
        assert any(whole[at : at + 8] == row for at in range(N))


def test_a_block_has_each_of_its_sequences_once_and_not_in_the_text_s_order() -> None:
    sequence, count = 7, N // 7
    tokens, _ = taken(Loader(TOKENS, sequence, 1, seed=2), 2 * count)
    text = TokenStream(TOKENS, 2).read(0, 2 * count * sequence).reshape(2, count, sequence)
    read = tokens.numpy().reshape(2, count, sequence)
    for block in range(2):
        assert sorted(map(tuple, read[block])) == sorted(map(tuple, text[block]))
        assert not np.array_equal(read[block], text[block])
    places = [
        [text[block].tolist().index(row) for row in read[block].tolist()] for block in range(2)
    ]
    assert places[0] != places[1]


def test_neighbours_of_a_batch_are_rarely_neighbours_in_the_text() -> None:
    document = (np.arange(1000) % END).astype(np.uint16)
    tokens = pack([document] * 40, END + 1)
    loader = Loader(tokens, 10, 1, seed=0)
    starts = np.array([loader._start(index) for index in range(4000)])
    assert (np.diff(starts) == 10).mean() < 0.01


def test_a_longer_text_is_shuffled_in_blocks(monkeypatch) -> None:
    monkeypatch.setattr("reference.text.loader.BLOCK", 50)
    loader = Loader(TOKENS, 5, 1, seed=0)
    starts = [loader._start(index) for index in range(20)]
    assert sorted(starts[:10]) == list(range(0, 50, 5)) != starts[:10]
    assert sorted(starts[10:]) == list(range(50, 100, 5))


def test_what_was_consumed_is_what_batches_held_in_the_text_s_order() -> None:
    loader = Loader(TOKENS, 5, 4, seed=1)
    tokens, _ = taken(loader, 6)
    consumed = loader.consumed()
    assert sorted(consumed.tolist()) == sorted(tokens.tolist())
    whole = Loader(TOKENS, 5, 1, seed=1)
    whole.taken = N // 5
    assert whole.consumed().tolist() == TokenStream(TOKENS, 1).read(0, N // 5 * 5).tolist()


@given(before=st.integers(0, 30), micro_batch=WHOLE)
def test_a_resumed_loader_goes_on_bit_equal(before: int, micro_batch: int) -> None:
    loader = Loader(TOKENS, 5, 4, seed=1)
    for _ in range(before):
        next(loader)
    resumed = Loader(TOKENS, 9, micro_batch, seed=1)
    resumed.load_state_dict(loader.state_dict())
    rows, _ = taken(resumed, 4)
    expected, _ = taken(Loader(TOKENS, 5, 1, seed=1), before * 4 + 4 * micro_batch)
    assert torch.equal(rows, expected[before * 20 :])


@given(before=st.integers(1, 30), sequence=WHOLE)
def test_sequences_of_another_length_begin_behind_the_block(before: int, sequence: int) -> None:
    loader = Loader(TOKENS, 5, 4, seed=1)
    for _ in range(before):
        next(loader)
    after = loader.with_sequences(sequence, 2)
    if sequence == 5:
        assert torch.equal(next(after)[0], next(loader)[0][:2])
        return
    block = N // 5 * 5
    begin = -(-before * 20 // block) * block
    assert after.base == begin
    assert begin <= after._start(0) < begin + N


@given(micro_batch=st.sampled_from([1, 2, 3, 4, 6, 12]), world=st.sampled_from([1, 2, 4]))
def test_a_step_sees_the_same_sequences_however_it_is_cut(micro_batch: int, world: int) -> None:
    loaders = [Loader(TOKENS, 6, micro_batch, 0, rank, world) for rank in range(world)]
    rounds = 48 // (micro_batch * world)
    rows = [next(loader)[0] for _ in range(rounds) for loader in loaders]
    one = torch.cat([row.reshape(-1, 6) for row in rows])
    expected, _ = taken(Loader(TOKENS, 6, 1, 0), len(one))
    assert torch.equal(one.flatten(), expected)
    assert {loader.taken for loader in loaders} == {len(one)}


def test_the_state_fits_in_json_and_says_where_it_stands() -> None:
    loader = Loader(TOKENS, 8, 2, seed=3, rank=1, world=2)
    next(loader)
    stands = {"base": 0, "sequence": 8, "taken": 4, "seed": 3, "tokens": "digest"}
    assert loader.state_dict() == stands
    assert loader.epoch == 32 / N


@pytest.mark.parametrize(("other", "told"), [({"seed": 9}, "data.seed"), ({"tokens": "x"}, "text")])
def test_the_state_of_another_stream_is_refused(other: dict[str, object], told: str) -> None:
    loader = Loader(TOKENS, 8, 2, seed=3)
    with pytest.raises(UsageError) as raised:
        loader.load_state_dict({**loader.state_dict(), **other})
    (problem,) = raised.value.problems
    assert problem.code == "TW227"
    assert told in problem.message
    assert loader.taken == 0


def test_a_loader_without_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="TW223"):
        Loader(pack([], 300), 8, 2, seed=0)


@given(sequence=st.integers(1, 50), rows=st.integers(1, 5))
def test_windows_predict_every_token_once(sequence: int, rows: int) -> None:
    batches = list(windows(TOKENS, END, sequence, rows))
    targets = torch.cat([targets.flatten() for _, targets in batches])
    assert torch.equal(targets[targets != IGNORED], torch.from_numpy(TOKENS.ids_N.astype(np.int64)))
    assert all(one.shape == other.shape for one, other in batches)
    assert all(one.shape[1] == sequence and len(one) <= rows for one, _ in batches)


@given(sequence=st.integers(2, 50))
def test_a_window_holds_the_text_before_each_target_at_least_half_a_sequence(sequence: int) -> None:
    text = [END, *TOKENS.ids_N.tolist()]
    place = 0  # of the last token before the next target
    for tokens, targets in windows(TOKENS, END, sequence, 3):
        for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
            for at, target in enumerate(wanted):
                if target == IGNORED:
                    continue
                assert row[: at + 1] == text[place - at : place + 1]
                assert at >= min(place, sequence // 2)
                place += 1
    assert place == len(text) - 1


def test_nothing_held_out_makes_no_window() -> None:
    assert list(windows(pack([], END + 1), END, 8, 2)) == []


@pytest.mark.parametrize(("vocabulary", "kind"), [(2**16, np.uint16), (2**16 + 1, np.uint32)])
def test_ids_take_two_bytes_as_long_as_they_can(vocabulary: int, kind: type) -> None:
    tokens = pack([np.array([5, vocabulary - 2])], vocabulary)
    assert tokens.ids_N.dtype == kind
    assert tokens.ids_N.tolist() == [5, vocabulary - 2, vocabulary - 1]
