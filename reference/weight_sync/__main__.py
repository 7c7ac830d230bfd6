"""`python -m reference.weight_sync CONFIG --to LAYOUT`: weights of a run, cut as the trainer cuts
them, to inference ranks of another layout; every rank a process of its own. It says what each stage
took, and checks what arrived."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from reference.ending import exit_code, say
from twin.errors import Problem, UsageError

if TYPE_CHECKING:
    from reference.weight_sync.buckets import WeightBucket
    from reference.weight_sync.controller import UpdateResult
    from reference.weight_sync.job import Running, WeightSource
    from reference.weight_sync.spec import SyncSpec

_KILLED = 9
"""Exit code of a receiver that ends on purpose."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, those of `reference.train`; 1 where weights differ."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # torch takes more than a second to load: `--help` and misspelled options go without.
    from reference.weight_sync.controller import SyncJob  # noqa: PLC0415  loads torch
    from reference.weight_sync.job import mesh_for, source_of, started  # noqa: PLC0415  loads torch
    from reference.weight_sync.layout import read_layout  # noqa: PLC0415  loads torch
    from reference.weight_sync.report import text  # noqa: PLC0415  loads torch

    source, layout, sync = source_of(words.config, words.set), read_layout(words.to), _sync(words)
    if words.start and source.checkpoint is None:
        message = "a start reads a checkpoint, and a configuration has none"
        raise UsageError([Problem("TW627", "--start", message, "name a run's folder")])
    number = -1 if words.lose is None else words.lose
    if not -1 <= number < layout.ranks:
        message = f"there is no receiver {number} of {layout.ranks}"
        raise UsageError([Problem("TW620", "--lose", message, f"0 to {layout.ranks - 1}")])
    mesh = mesh_for(source.run, words.ranks)
    job = SyncJob(source.run.model, source.dtype, mesh, layout, sync)
    with started(source, mesh, job, (number, _ending)) as running:
        document = _done(running, source, words)
    output = json.dumps(document, indent=1) if words.json else text(document)
    sys.stdout.write(output + "\n")
    return 1 if document["unequal"] else 0


def _done(running: Running, source: WeightSource, words: argparse.Namespace) -> dict[str, Any]:
    """Keep or read, update as often as asked, recover who was lost; what became of it."""
    from reference.weight_sync.report import (  # noqa: PLC0415  loads torch
        described,
        recovered,
        updated,
        write_timeline,
    )

    controller = running.controller
    first: dict[str, Any] = {}
    if words.start:
        assert source.checkpoint is not None
        read = controller.start(source.checkpoint, version=1)
        spans = [span for own in controller.spent().values() for span in own]
        seconds = (max(one.end for one in spans) - min(one.start for one in spans)) * 1e-9
        first["start"] = {"bytes": read, "seconds": seconds}
    else:
        controller.keep(version=1)
        controller.spent()
    outcomes: list[UpdateResult] = []
    recoveries: list[dict[str, Any]] = []
    names = ("two", "three") if words.stages == "both" else (words.stages,)
    for _ in range(words.repeat):
        for stages in names:
            outcome = controller.update(stages)
            outcomes.append(outcome)
            for number in outcome.lost:
                say(f"receiver {number} is gone; a new process takes its place")
                again = controller.recover(number, running.again(number))
                recoveries.append(recovered(again))
    if words.timeline is not None:
        write_timeline(words.timeline, controller, outcomes)
    updates = [updated(one) for one in outcomes]
    rest = {"updates": updates, "recoveries": recoveries, "unequal": controller.unequal()}
    return {**described(controller), **first, **rest}


def _ending(bucket: WeightBucket) -> None:
    """Ends the process when its second bucket has come, as if it were killed."""
    if bucket.owner or bucket.round:
        os._exit(_KILLED)


def _sync(words: argparse.Namespace) -> SyncSpec:
    from reference.weight_sync.spec import SyncSpec  # noqa: PLC0415  loads pydantic's models

    fields = {
        name: value
        for name in ("wire", "bucket", "free_memory", "patience", "rate")
        if (value := getattr(words, name)) is not None
    }
    try:
        return SyncSpec.model_validate(fields)
    except ValidationError as error:
        problems = [
            Problem("TW628", f"--{one['loc'][0]}".replace("_", "-"), one["msg"])
            for one in error.errors()
        ]
        raise UsageError(problems) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.weight_sync",
        description="Sends a run's weights from the trainer's ranks to inference ranks.",
    )
    config = "a run's folder, one of its checkpoints, or a configuration: its first weights"
    parser.add_argument("config", metavar="CONFIG", help=config)
    layout = "of the inference ranks, such as `replicas=2,expert=2`: replicas, pipeline, expert, "
    parser.add_argument("--to", metavar="LAYOUT", required=True, help=layout + "tensor, names")
    parser.add_argument(
        "--set", metavar="A.B=VALUE", action="append", default=[], help="override one field"
    )
    parser.add_argument("--ranks", type=_count, help="of the trainer; pipeline x expert")
    parser.add_argument(
        "--stages", choices=["two", "three", "both"], default="both", help="one after the other"
    )
    parser.add_argument("--wire", choices=["direct", "collective"], help="direct")
    parser.add_argument("--bucket", metavar="SIZE", help="most bytes of a bucket (8MB)")
    parser.add_argument("--free-memory", metavar="SIZE", help="for buffers, per rank (96MB)")
    parser.add_argument("--rate", help="of each rank's link, such as 1Gbps; loopback (needs root)")
    parser.add_argument("--patience", metavar="TIME", help="until a rank is taken to be gone (60s)")
    parser.add_argument("--repeat", type=_count, default=1, help="updates of each kind (1)")
    parser.add_argument("--start", action="store_true", help="read the checkpoint together, once")
    parser.add_argument("--lose", type=int, metavar="N", help="end receiver N within an update")
    parser.add_argument("--timeline", type=Path, metavar="FOLDER", help="write what ran when")
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


if __name__ == "__main__":
    sys.exit(main())
