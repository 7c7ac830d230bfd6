"""What ranks save in pieces, any other ranks read in other pieces; whole, or not at all."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import torch.distributed as dist
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import reference.checkpoint.tensors  # noqa: F401  loaded once here, not in each rank
from reference.checkpoint import folder, tensors
from reference.checkpoint.folder import (
    Snapshot,
    load_tensors,
    newest,
    remove_unfinished,
    save,
)
from reference.checkpoint.piece import Piece, piece_of
from reference.config import load_run
from reference.trainer.resume import fill, find
from tests.reference.parallel.ranks import run_ranks
from twin.errors import TwinError

RANKS = 4
KINDS = [torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.uint8]
Ranges = list[tuple[int, int]]


@dataclass(frozen=True)
class Case:
    """Tensors of any bits, who saves which ranges of them, and who wants which."""

    tensors: dict[str, Tensor]
    saving: int
    saved: dict[str, list[tuple[int, int, int]]]
    """Ranges that together are the tensor: rank, first, end."""
    wanted: dict[str, list[Ranges]]
    """Any ranges, by rank."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    saving = draw(st.integers(1, RANKS))
    tensors, saved, wanted = {}, {}, {}
    for number in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
        kind = draw(st.sampled_from(KINDS))
        name, count = f"t{number}", prod(shape)
        bits = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
        raw = torch.randint(256, (count * kind.itemsize,), dtype=torch.uint8, generator=bits)
        tensors[name] = raw.view(kind).view(shape)
        place = st.integers(0, count)
        cuts = sorted({0, count, *draw(st.lists(place, max_size=5))})
        owner = st.integers(0, saving - 1)
        saved[name] = [(draw(owner), *cut) for cut in pairwise(cuts)]
        if not count:
            saved[name] = [(draw(owner), 0, 0)]
        ends = st.tuples(place, place).map(lambda two: (min(two), max(two)))
        wanted[name] = [draw(st.lists(ends, max_size=3)) for _ in range(RANKS)]
    return Case(tensors, saving, saved, wanted)


def own_pieces(case: Case, rank: int) -> dict[str, tuple[Piece, ...]]:
    """What a rank saves: views of the case's tensors."""
    found = {}
    for name, tensor in case.tensors.items():
        flat, shape = tensor.view(-1), tuple(tensor.shape)
        mine = [(first, end) for owner, first, end in case.saved[name] if owner == rank]
        if mine:
            found[name] = tuple(Piece(flat[a:b], a, shape) for a, b in mine)
    return found


def resharded(rank: int, count: int, path: Path, every: list[Case]) -> list[bool]:
    """Save each case in the group of its size, and read it on all ranks: is it what it was?"""
    del count
    groups = [dist.new_group(list(range(size))) for size in range(1, RANKS + 1)]
    equal = []
    for number, case in enumerate(every):
        where = path / str(number)
        if rank < case.saving:
            group = groups[case.saving - 1]
            assert isinstance(group, dist.ProcessGroup)
            snapshot = Snapshot(number, own_pieces(case, rank), {"rank": rank}, {})
            save(where, snapshot, 1, group)
        dist.barrier()
        found, refused = newest(where, dist.group.WORLD)
        assert found is not None
        assert (refused, found.facts) == ([], {"rank": 0})
        equal.append(all_equal(case, rank, found))
    return equal


def all_equal(case: Case, rank: int, found: folder.IntactCheckpoint) -> bool:
    wanted = {}
    for name, tensor in case.tensors.items():
        shape = tuple(tensor.shape)
        assert found.shapes[name] == (str(tensor.dtype).removeprefix("torch."), shape)
        wanted[name] = tuple(
            Piece(torch.zeros(end - first, dtype=tensor.dtype), first, shape)
            for first, end in case.wanted[name][rank]
        )
    load_tensors(found, wanted, dist.group.WORLD)
    return all(
        torch.equal(
            piece.tensor.view(torch.uint8),
            case.tensors[name].view(-1)[piece.offset : piece.end].view(torch.uint8),
        )
        for name, pieces in wanted.items()
        for piece in pieces
    )


@settings(max_examples=1, deadline=None, database=None, phases=[Phase.generate])
@given(st.lists(cases(), min_size=5, max_size=5))
def test_any_cut_is_read_under_any_other_bit_by_bit(every: list[Case]) -> None:
    with TemporaryDirectory() as path:
        for equal in run_ranks(RANKS, resharded, Path(path), every):
            assert all(equal)


def halves(rank: int, count: int) -> dict[str, Piece]:
    """A tensor of 12 numbers in equal parts, and one that the first rank has."""
    size = 12 // count
    line = torch.arange(rank * size, (rank + 1) * size, dtype=torch.float32)
    found = {"line": Piece(line, rank * size, (3, 4))}
    return found | ({"alone": piece_of(torch.tensor(7))} if rank == 0 else {})


def saved(rank: int, count: int, path: Path, *steps: int) -> None:
    for step in steps:
        save(path, Snapshot(step, halves(rank, count), {}, {}), 2, dist.group.WORLD)


def dying(who: int, name: str, work: Callable[..., object]) -> Callable[..., object]:
    """The work, which kills the process where it is that rank and step 8."""

    def die(*inputs: object) -> object:
        if dist.get_rank() == who and "step-00000008" in str(inputs[0]):
            if name == "_written":
                work(*inputs)
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*inputs)

    return die


@pytest.mark.parametrize(
    ("who", "name"),
    [(1, "_write_tensors"), (0, "_write_tensors"), (1, "_written"), (0, "_write_manifest")],
)
def test_a_rank_killed_while_saving_leaves_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: int, name: str
) -> None:
    monkeypatch.setattr(folder, name, dying(who, name, getattr(folder, name)))
    with pytest.raises(RuntimeError, match=r"died without a word|Connection"):
        run_ranks(2, saved, tmp_path, 4, 8)
    found, refused = newest(tmp_path)
    assert found is not None
    assert (found.step, refused) == (4, [])
    assert len(remove_unfinished(tmp_path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


def told(work: Callable[..., object]) -> tuple[str, str]:
    """Code and text of the problem that the work ends with."""
    with pytest.raises(TwinError) as caught:
        work()
    problem = caught.value.problems[0]
    return problem.code, problem.message


def fails_in_torch(rank: int, count: int, path: Path) -> tuple[str, str]:
    """The second rank's disk is full when torch writes its file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")

    if rank == 1:
        FileSystemWriter.write_data = full  # pyright: ignore[reportAttributeAccessIssue]
    return told(lambda: saved(rank, count, path, 4))


def fails_in_a_tensor(rank: int, count: int, path: Path) -> tuple[str, str]:
    """The second rank's disk is full in the middle of a tensor, which torch's zip files tell as a
    place that is not where it should be."""

    def short(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc] . unexpected pos 704 vs 598")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file")

    if rank == 1:
        FileSystemWriter.write_data = short  # pyright: ignore[reportAttributeAccessIssue]
        tensors.tempfile.TemporaryFile = full  # pyright: ignore[reportAttributeAccessIssue]
    return told(lambda: saved(rank, count, path, 4))


@pytest.mark.parametrize("fails", [fails_in_torch, fails_in_a_tensor])
def test_where_one_rank_cannot_write_all_fail_and_say_which(fails, tmp_path: Path) -> None:
    said = run_ranks(2, fails, tmp_path)
    message = "rank 1 cannot read or write `file`: No space left on device"
    assert said == [("TW310", message)] * 2
    assert newest(tmp_path) == (None, [])


def sees(rank: int, count: int, path: Path) -> tuple[int, list[str]]:
    """Step and refusals that a rank finds, with a word of others'."""
    del rank, count
    found, refused = newest(path, dist.group.WORLD)
    assert found is not None
    return found.step, [problem.message for problem in refused]


def test_a_damaged_file_of_any_rank_is_refused_by_name(tmp_path: Path) -> None:
    run_ranks(3, saved, tmp_path, 4, 8)
    for rank in range(3):
        file = tmp_path / "step-00000008" / "tensors" / f"__{rank}_0.distcp"
        data = file.read_bytes()
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        why = f"`tensors/{file.name}` does not hold what was written"
        message = f"checkpoint `step-00000008` is refused: {why}"
        found, refused = newest(tmp_path)
        assert found is not None
        assert (found.step, [problem.message for problem in refused]) == (4, [message])
        if rank == 2:
            assert run_ranks(2, sees, tmp_path) == [(4, [message])] * 2
        file.write_bytes(data)


def apart(rank: int, count: int, path: Path, work: str) -> tuple[str, str]:
    """One name is another folder on each rank, as on machines that share none; in each lies a
    checkpoint of the same name."""
    path.joinpath(str(rank)).mkdir()
    os.chdir(path / str(rank))
    own = Path("run")
    whole_line = {"line": piece_of(torch.full((12,), rank))}
    save(own, Snapshot(4, whole_line, {}, {}), 1)
    if work == "save":
        said = told(lambda: saved(rank, count, own, 8))
        assert rank == 0 or len(list(own.iterdir())) == 1, "nothing was written there"
        return said
    return told(lambda: newest(own, dist.group.WORLD))


@pytest.mark.slow
@pytest.mark.parametrize(("work", "says"), [("save", "does not see"), ("newest", "different")])
def test_ranks_that_share_no_folder_are_told_so(tmp_path: Path, work: str, says: str) -> None:
    said = run_ranks(2, apart, tmp_path, work)
    assert [code for code, _ in said] == ["TW311"] * 2
    assert all(says in message for _, message in said)


def misfit(rank: int, count: int, path: Path, begins: int) -> str:
    """The second rank's piece begins elsewhere than the first's ends."""
    own = {"line": Piece(torch.zeros(6), rank * begins, (3, 4))}
    del count
    with pytest.raises(ValueError, match="not every number of `line` is in one piece") as caught:
        save(path, Snapshot(4, own, {}, {}), 1, dist.group.WORLD)
    return str(caught.value)


@pytest.mark.parametrize("begins", [5, 0])
def test_a_number_in_two_pieces_or_in_none_is_not_saved(tmp_path: Path, begins: int) -> None:
    first, second = run_ranks(2, misfit, tmp_path, begins)
    assert first == second
    assert newest(tmp_path) == (None, [])


def of_other_sizes(rank: int, count: int, path: Path) -> tuple[str, str]:
    own = halves(rank, count)
    if rank == 1:
        own["more"] = piece_of(torch.zeros(2, 3))
    found, _ = newest(path, dist.group.WORLD)
    assert found is not None
    return told(lambda: fill(found, own, torch.device("cpu"), dist.group.WORLD))


@pytest.mark.slow
def test_a_tensor_that_only_one_rank_has_otherwise_is_refused_by_all(tmp_path: Path) -> None:
    run_ranks(2, saved, tmp_path, 4)
    first, second = run_ranks(2, of_other_sizes, tmp_path)
    assert first == second
    assert first[0] == "TW235"
    assert "`more` absent -> float32 2x3" in first[1]


def finds(rank: int, count: int, path: Path) -> tuple[int | None, list[str]]:
    """Step found, and what was told."""
    del rank, count
    said: list[str] = []
    run = load_run("nano", [f"train.output={path}"])
    found, _ = find(run, path, said.append, dist.group.WORLD)
    return found.step if found else None, said


def test_all_ranks_go_on_from_the_same_checkpoint(tmp_path: Path) -> None:
    config = load_run("nano", [f"train.output={tmp_path}"]).model_dump(mode="json")
    for step in (4, 8):
        state = {"line": piece_of(torch.zeros(3))}
        save(tmp_path / "checkpoints", Snapshot(step, state, {}, config), 2)
    (tmp_path / "checkpoints" / "step-00000008" / "manifest.json").unlink()
    (tmp_path / "checkpoints" / ".step-00000012.0.partial").mkdir()
    first, second = run_ranks(2, finds, tmp_path)
    assert first == second
    step, said = first
    assert step == 4
    assert "removed `.step-00000012.0.partial`" in said[0]
    assert "TW233 checkpoint `step-00000008` is refused" in said[1]
    assert not list(tmp_path.glob("checkpoints/.*"))
