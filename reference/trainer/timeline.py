"""The timeline of a run's ranks in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from reference.config import RunSpec
from reference.parallel.timeline import FOLDER
from reference.parallel.world import World
from reference.trainer.stages import stages_of


@contextmanager
def writing(world: World, folder: Path, run: RunSpec) -> Iterator[None]:
    """Within, this rank writes down what runs when."""
    header = {
        "ranks": world.ranks,
        "stage": world.mesh.stage(world.rank),
        "parallel": run.parallel.model_dump(mode="json"),
        "model": run.model.name,
        "microbatches": stages_of(run)[0].accumulate // world.mesh.data,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    world.tape.open(folder / FOLDER, world.rank, header)
    try:
        yield
    finally:
        world.tape.close()
