"""The reference trainer: the configuration that it reads, written from a scenario, and its start
on the ranks of a local cluster (`python -m reference.cluster`).

Model, memory policy and the section `parallel` are copied. Steps, text and learning rate are the
trainer's own: they change no time. Routing is forced to balance where the scenario assumes balance,
since no router is balanced after a few steps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from twin import units
from twin.engine.buckets import reduced
from twin.errors import Problem, UsageError
from twin.planning.types import Plan
from twin.spec.cluster import ClusterSpec

_ASK: Final = "from reference.cluster.namespaces import obstacle; print(obstacle())"
_LAST: Final = 12
"""Lines of a log that say why it ended."""


FIRST: Final = ("sh", "-c", 'chrt --rr -p 1 $$ >/dev/null 2>&1; exec "$@"', "sh")
"""Before the words of a paced run: ranks that stand in for devices go before other processes, which
slow no device, and wake on time: other classes wait for a tick of the kernel's clock (sched(7)).
Where that is not allowed they are late, and overrun their pace."""
BEFORE_OTHERS: Final = (
    "sh",
    "-c",
    '{ renice -n -20 -p $$; echo -20 >/proc/self/autogroup; } >/dev/null 2>&1; exec "$@"',
    "sh",
)
"""Before the words of a run that computes: it gets nearly all of the cores that it needs, from its
own session (sched(7), autogroups). In the real-time class it would starve the kernel's network."""


def checkout() -> Path:
    """The folder that holds the reference. Raises UsageError where it is not installed."""
    spec = find_spec("reference")
    if spec is None or not spec.submodule_search_locations:
        message = "the reference trainer is not here: it does not come with the package"
        raise UsageError([Problem("TW372", "", message, "run this in a checkout, after `make`")])
    return Path(next(iter(spec.submodule_search_locations))).parent


def obstacle() -> str:
    """Why no link can be held to a rate here; empty where they can be."""
    asked = subprocess.run(
        [sys.executable, "-c", _ASK], cwd=checkout(), capture_output=True, text=True, check=False
    )
    if asked.returncode:
        message = f"the reference does not start: {asked.stderr.strip().splitlines()[-1]}"
        raise UsageError([Problem("TW372", "", message, "pip install -e '.[reference]'")])
    return asked.stdout.strip()


def command(
    cluster: ClusterSpec, configuration: Path, *, shaped: bool, pinned: bool = False
) -> list[str]:
    """The words that start a run on the ranks of a cluster; `pinned`: each on a core of its own."""
    links = ["--loopback"]
    if shaped:
        links = ["--rate", units.format_quantity(cluster.node.nic.bandwidth, "bytes_per_s")]
    nodes, ranks = str(cluster.nodes), str(cluster.node.gpus)
    first = BEFORE_OTHERS if pinned else FIRST * shaped
    launcher = [*first, sys.executable, "-m", "reference.cluster"]
    layout = ["--nodes", nodes, "--ranks-per-node", ranks, *links, *["--pin"] * pinned]
    return [*launcher, *layout, "--", "reference.train", str(configuration), "--fresh"]


def start(words: Sequence[str], log: Path) -> None:
    """Run to the end; what it says goes to a file. Raises UsageError (TW373) where it fails."""
    with log.open("wb") as said:
        code = subprocess.run(
            words,
            cwd=checkout(),
            stdout=said,
            stderr=subprocess.STDOUT,
            check=False,
            start_new_session=True,
        ).returncode
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST:]
        message = f"the reference ended with exit code {code}:\n" + "\n".join(lines)
        raise UsageError([Problem("TW373", "", message, f"all that it said is in {log}")])


_SAME: Final = ("pipeline", "virtual", "expert", "zero", "order")
"""Fields of the section `parallel` that both have."""


def configuration(plan: Plan, output: Path, steps: int, pace: Path | None) -> dict[str, Any]:
    """The trainer's configuration: a run of so many steps into a folder, at a pace or none."""
    scenario = plan.scenario
    parallel, train = scenario.parallel, scenario.train
    written = parallel.model_dump(mode="json")
    return {
        "model": scenario.model.model_dump(mode="json", by_alias=True),
        "train": {
            "steps": steps,
            "sequence": train.sequence,
            "micro_batch": parallel.micro_batch,
            "accumulate": train.global_batch_sequences // parallel.micro_batch,
            "output": str(output),
            "device": "cpu",
            "timeline": True,
            "pace": None if pace is None else str(pace),
            "checkpoint_every": 0,
            "evaluate_every": 0,
            "final_sequences": 0,
        },
        "optimizer": {"kind": train.optimizer.model_dump()["kind"]},
        "balance": {"forced": train.routing.kind == "balanced"},
        "parallel": {name: written[name] for name in _SAME}
        | {"schedule": written["schedule"], "layers": list(plan.layers_per_part)},
        "memory": scenario.memory.model_copy(update={"by_stage": plan.by_stage}).model_dump(
            mode="json"
        ),
    }


def problems(plan: Plan) -> list[Problem]:
    """What of a scenario the reference does not do: TW371, one each."""
    return [Problem("TW371", *one) for one in _differences(plan)]


def _beside_passes(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Collectives of the optimizer that would run beside passes."""
    if reduced(plan, plan.chunks[0]):
        message = "the reference reduces all gradients of a chunk at once"
        yield "parallel.bucket_size", message, "parallel.overlap_grad_reduce: false"
    if plan.scenario.parallel.overlap_param_gather:
        message = "the reference gathers weights when they are new"
        yield "parallel.overlap_param_gather", message, "parallel.overlap_param_gather: false"


def _differences(plan: Plan) -> Iterator[tuple[str, str, str]]:
    scenario = plan.scenario
    parallel, train = scenario.parallel, scenario.train
    for axis in ("tensor", "context", "expert_tensor"):
        if getattr(parallel, axis) > 1:
            yield f"parallel.{axis}", f"the reference has no {axis} ranks", f"parallel.{axis}: 1"
    if parallel.zero > 1:
        yield "parallel.zero", "the reference shards optimizer states only", "parallel.zero: 1"
    if parallel.expert > 1 and parallel.overlap_shared_experts:
        yield (
            "parallel.overlap_shared_experts",
            "the reference's shared experts wait for routed ones",
            "parallel.overlap_shared_experts: false",
        )
    if parallel.dispatcher != "alltoall":
        yield "parallel.dispatcher", "the reference's all-to-all is plain", "alltoall"
    yield from _beside_passes(plan)
    if parallel.schedule.staggered:
        message = "stages of the reference agree on the gradient norm before any of them updates"
        fix = "parallel.schedule.post_validation: false"
        yield "parallel.schedule.post_validation", message, fix
    if train.precision != "bf16" or train.attention_kernel != "flash":
        yield "train", "the reference computes in bf16 with a fused attention kernel", ""
    if train.routing.kind != "balanced":
        message = "the reference routes by force only where routing is balanced"
        yield "train.routing", message, "train.routing: balanced"
    if scenario.memory.optimizer_update != "device":
        message = "the reference updates on the device"
        yield "memory.optimizer_update", message, "memory.optimizer_update: device"
