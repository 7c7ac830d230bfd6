"""Collectives whose receives are posted first do what gloo's do, and at the link's full rate."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.cluster.launch import Outcome, Program, launch
from reference.cluster.spec import LocalCluster

Write = Callable[..., Program]


@pytest.mark.parametrize("ranks", [2, 3])
def test_they_equal_those_of_torch(program: Write, ranks: int) -> None:
    text = """
        from reference.cluster import posted
        torch.manual_seed(rank)

        sent = [(rank + other) % 3 for other in range(size)]        # some send nothing
        received = [(other + rank) % 3 for other in range(size)]
        x_RD = torch.randn(sum(sent), 4)
        into_RD, wanted_RD = torch.empty(2, sum(received), 4)
        posted.all_to_all(into_RD, x_RD, received, sent).wait()
        dist.all_to_all_single(wanted_RD, x_RD, received, sent)
        assert torch.equal(into_RD, wanted_RD)

        x_X = torch.randn(4 * size)
        into_X, wanted_X = torch.empty(2, 4 * size)
        posted.all_to_all(into_X, x_X).wait()
        dist.all_to_all_single(wanted_X, x_X)
        assert torch.equal(into_X, wanted_X)

        part, wanted = torch.empty(2, 4)
        posted.reduce_scatter(part, x_X)
        dist.reduce_scatter_single(wanted, x_X)
        assert torch.allclose(part, wanted)

        posted.all_gather(into_X, part)
        dist.all_gather_single(wanted_X, part)
        assert torch.equal(into_X, wanted_X)

        own = into_X.chunk(size)[rank]
        own.fill_(rank)
        posted.all_gather(into_X, own)
        assert into_X.tolist() == [float(other) for other in range(size) for _ in range(4)]
    """
    assert launch(LocalCluster(nodes=ranks), program(text), shaped=False) == Outcome(0)


@pytest.mark.usefixtures("links")
def test_between_two_ranks_they_need_half_of_gloos_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    patterns = "all_to_all,all_to_all_posted,reduce_scatter,reduce_scatter_posted"
    words = ["--patterns", patterns, "--sizes", "1MiB", "--seconds", "0.4", "--output", str(path)]
    program = Program("reference.cluster.timing", words)
    assert launch(LocalCluster(nodes=2, rate=12.5e6), program) == Outcome(0)
    with path.open() as file:
        seconds = {row["pattern"]: float(row["median"]) for row in csv.DictReader(file)}
    assert seconds["all_to_all_posted"] < 0.65 * seconds["all_to_all"]
    assert seconds["reduce_scatter_posted"] < 0.65 * seconds["reduce_scatter"]
