"""Collectives whose receives are posted first do what gloo's do, and at the link's full rate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reference.cluster.launch import LaunchResult, RankProgram, launch
from reference.cluster.namespaces import LocalCluster

Write = Callable[..., RankProgram]


@pytest.mark.parametrize("ranks", [2, 3])
def test_they_equal_those_of_torch(program: Write, ranks: int) -> None:
    text = """
        from reference.parallel import groups
        torch.manual_seed(rank)

        sent = [(rank + other) % 3 for other in range(size)]        # some send nothing
        received = [(other + rank) % 3 for other in range(size)]
        x_RD = torch.randn(sum(sent), 4)
        into_RD, wanted_RD = torch.empty(2, sum(received), 4)
        groups.all_to_all(into_RD, x_RD, received, sent).wait()
        dist.all_to_all_single(wanted_RD, x_RD, received, sent)
        assert torch.equal(into_RD, wanted_RD)

        x_X = torch.randn(4 * size)
        into_X, wanted_X = torch.empty(2, 4 * size)
        groups.all_to_all(into_X, x_X).wait()
        dist.all_to_all_single(wanted_X, x_X)
        assert torch.equal(into_X, wanted_X)

        part, wanted = torch.empty(2, 4)
        groups.reduce_scatter(part, x_X)
        dist.reduce_scatter_single(wanted, x_X)
        assert torch.allclose(part, wanted)

        groups.all_gather(into_X, part)
        dist.all_gather_single(wanted_X, part)
        assert torch.equal(into_X, wanted_X)

        own = into_X.chunk(size)[rank]
        own.fill_(rank)
        groups.all_gather(into_X, own)
        assert into_X.tolist() == [float(other) for other in range(size) for _ in range(4)]
    """
    assert launch(LocalCluster(nodes=ranks), program(text), shaped=False) == LaunchResult(0)


@pytest.mark.slow  # the seconds are a link's own only where nothing else runs
@pytest.mark.usefixtures("links")
def test_a_late_rank_makes_gloos_all_to_all_move_one_way_at_a_time_and_not_theirs(
    program: Write, tmp_path: Path
) -> None:
    """Seconds from when the late one begins, least of some."""
    text = """
        import json
        from reference.parallel import groups
        x_X, into_X = torch.zeros(2, 1 << 20, dtype=torch.uint8)
        ways = {
            "gloo": lambda: dist.all_to_all_single(into_X, x_X),
            "posted": lambda: groups.all_to_all(into_X, x_X).wait(),
        }
        seconds = {way: [] for way in ways}
        for _ in range(5):
            for way, run in ways.items():
                dist.barrier()
                if rank == 1:
                    time.sleep(0.05)
                late = torch.tensor([time.monotonic()], dtype=torch.float64)
                run()
                end = torch.tensor([time.monotonic()], dtype=torch.float64)
                dist.all_reduce(late, dist.ReduceOp.MAX)
                dist.all_reduce(end, dist.ReduceOp.MAX)
                seconds[way].append((end - late).item())
        if rank == 0:
            least = {way: min(some) for way, some in seconds.items()}
            Path(sys.argv[1]).write_text(json.dumps(least))
    """
    path, rate = tmp_path / "least.json", 12.5e6
    outcome = launch(LocalCluster(nodes=2, rate=rate), program(text, str(path)))
    assert outcome == LaunchResult(0)
    least, one_way = json.loads(path.read_text()), 2**20 / 2 / rate
    assert least["gloo"] > 1.9 * one_way
    assert one_way < least["posted"] < 1.5 * one_way
