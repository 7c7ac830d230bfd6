"""Collectives over local ranks by size: gloo between forked processes on a CPU, NCCL where there
are several GPUs.

One set of processes runs all of them, in an order that each rank knows beforehand. A sample is a
row of collectives behind a barrier, timed by rank 0, whose process ends each with the others' data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from reference.measure import clock
from reference.measure.clock import Timing
from reference.measure.fitting import Collective
from reference.measure.points import WIDTH, Setting, Skip, TimedCase

KINDS: tuple[Collective, ...] = get_args(Collective)
FP32 = "fp32"
ROW = 3
"""Collectives in a row."""
PATIENCE = 300
"""Seconds after which ranks that do not meet are given up."""


def collective_cases(setting: Setting) -> list[TimedCase | Skip]:
    """Each collective at each size. Bytes are the payload as the twin counts it:
    the whole tensor, gathered or not yet scattered; of all-to-all what one rank sends."""
    if setting.ranks < 2:
        what = "GPUs" if setting.cuda else "cores"
        return [Skip("collectives", "every size", f"they need two {what}, here is one")]
    exponents = (12, 20) if setting.quick else (12, 16, 20, 24, 26, 28, 30)
    exponents = exponents if setting.cuda else exponents[:4]
    sizes = [2**exponent for exponent in exponents if 2**exponent <= setting.most_bytes]
    return [
        TimedCase(kind, {"bytes": size, "ranks": setting.ranks}, FP32, 0.0, float(size), 1, run)
        for kind in KINDS
        for size in sizes
        for run in [partial(_one, kind=kind, size=size, sizes=tuple(sizes))]
    ]


def _one(setting: Setting, kind: Collective, size: int, sizes: tuple[int, ...]) -> Timing:
    return _all(setting.cuda, setting.ranks, sizes, setting.effort.samples)[kind, size]


@lru_cache(maxsize=1)
def _all(
    cuda: bool, ranks: int, sizes: tuple[int, ...], samples: int
) -> Mapping[tuple[Collective, int], Timing]:
    """Every collective, measured at once. Raises `RuntimeError` where a rank fails."""
    context: Any = mp.get_context("spawn" if cuda else "fork")
    with TemporaryDirectory() as folder:
        task = (Path(folder), cuda, ranks, sizes, samples)
        processes = [context.Process(target=_rank, args=(rank, *task)) for rank in range(ranks)]
        for process in processes:
            process.start()
        deadline = time.monotonic() + PATIENCE
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        for process in processes:
            process.kill()
            process.join()
        result = Path(folder) / "timings.pt"
        if not result.exists():
            codes = ", ".join(str(process.exitcode) for process in processes)
            raise RuntimeError(f"the {ranks} ranks ended with exit codes {codes}, without a result")
        return torch.load(result, weights_only=False)


def _rank(
    rank: int, folder: Path, cuda: bool, ranks: int, sizes: tuple[int, ...], samples: int
) -> None:
    """The life of one rank."""
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if not cuda and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a host name may not resolve
    dist.init_process_group(
        "nccl" if cuda else "gloo",
        init_method=(folder / "store").as_uri(),
        rank=rank,
        world_size=ranks,
    )
    found: dict[tuple[Collective, int], Timing] = {}
    for size in sizes:
        for kind in KINDS:
            found[kind, size] = timing(collective(kind, size, ranks, device), samples, device)
    if rank == 0:
        torch.save(found, folder / "partial")
        (folder / "partial").rename(folder / "timings.pt")
    dist.barrier()
    dist.destroy_process_group()


def timing(call: clock.Call, samples: int, device: torch.device) -> Timing:
    """Seconds of a call that all ranks make behind a barrier, by this rank's clock."""
    seconds: list[float] = []
    for _ in range(samples + 1):
        dist.barrier()
        clock.finish(device)
        start = time.perf_counter()
        for _ in range(ROW):
            call()
        clock.finish(device)
        seconds.append((time.perf_counter() - start) / ROW)
    return clock.summary(seconds[1:], ROW)  # the first one connects ranks


def collective(kind: Collective, size: int, ranks: int, device: torch.device) -> clock.Call:
    """One collective of a payload of `size` bytes."""
    values = size // WIDTH[FP32] // ranks * ranks
    whole = torch.zeros(values, device=device)
    share = torch.zeros(values // ranks, device=device)
    match kind:
        case "all_reduce":
            return lambda: dist.all_reduce(whole)
        case "all_gather":
            return lambda: dist.all_gather_single(whole, share)
        case "reduce_scatter":
            return lambda: dist.reduce_scatter_single(share, whole)
        case "all_to_all":
            other = torch.zeros_like(whole)
            return lambda: dist.all_to_all_single(other, whole)
