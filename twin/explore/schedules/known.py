"""The known schedules of a scenario: what a search begins with, and what it has to beat.

Beside those of `twin.schedules` there is DualPipe cut in half, on a V (DualPipeV,
github.com/deepseek-ai/DualPipe, README). DualPipe on 2 p stages does on each what it does on its
mirror, with the directions changed. So p stages are enough: what came back on a second copy of the
weights comes back on the same stage, from the V's other end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from twin.planning.feasibility import microbatches
from twin.scenario import Scenario
from twin.schedules import KNOWN
from twin.schedules.base import Schedule, v_shaped
from twin.schedules.custom import Custom, custom
from twin.schedules.dualpipe import DualPipe
from twin.schedules.notation import turns_of

PAIRED: Final[Mapping[str, Any]] = {
    "kind": "interleaved_1f1b",
    "extra_warmup": 1,
    "overlap_all_to_all": True,
}


def dualpipe_v(stages: int, count: int) -> Custom:
    """DualPipe cut in half, of so many micro-batches, at least two per stage."""
    words: list[list[Any]] = []
    for stage in range(stages):
        there, back = 4 * stages - 1 - stage, 2 * stages - 1 - stage
        order = DualPipe().stage_order(stage, 2 * stages, 1, 2 * count)
        chunk = {stage: stage, there: back}
        words.append([tuple((k, chunk[c]) for k, c in turn) for turn in turns_of(order)])
    return custom(words, v_shaped(stages))


def schedule_from(written: Mapping[str, Any]) -> Schedule:
    """The schedule of plain data."""
    kind = str(written["kind"])
    return (KNOWN.get(kind) or Custom).model_validate(written)


def known_schedules(scenario: Scenario) -> Iterator[tuple[str, dict[str, Any]]]:
    """The scenario's own schedule, then every known one, each with chunks per stage that it runs;
    pairs where there are experts."""
    parallel = scenario.parallel
    own = parallel.schedule
    written = [own.model_dump(mode="json"), *({"kind": kind} for kind in KNOWN)]
    if scenario.model.moe is not None:
        written += [dict(PAIRED), {**PAIRED, "defer_weight_grad": True}]
    seen: set[Schedule] = set()
    for place, values in enumerate(written):
        schedule = schedule_from(values)
        if schedule in seen:
            continue
        seen.add(schedule)
        several = schedule.kind == "interleaved_1f1b"
        virtual = parallel.virtual if place == 0 else max(2, parallel.virtual) if several else 1
        found: dict[str, Any] = {"parallel.schedule": values, "parallel.virtual": virtual}
        if place and (virtual != parallel.virtual or copies(schedule) != copies(own)):
            found["parallel.layers"] = None
        yield _name(schedule) + (", as written" if place == 0 else ""), found
    count = microbatches(scenario)
    if count >= 2 * parallel.pipeline > 2:
        cut = dualpipe_v(parallel.pipeline, count)
        if cut not in seen:
            yield (
                "dualpipe, cut in half",
                {
                    "parallel.schedule": cut.model_dump(mode="json"),
                    "parallel.virtual": 2,
                    "parallel.layers": None,
                },
            )


def copies(schedule: Schedule) -> int:
    """Copies of the model in one pipeline."""
    return schedule.chunk_map(2, 1).copies


def _name(schedule: Schedule) -> str:
    """The schedule with the settings that are not as usual."""
    fields = type(schedule).model_fields.items()
    changed = [k.replace("_", " ") for k, it in fields if getattr(schedule, k) != it.default]
    marks = [one for one in changed if one not in ("kind", "version", "orders", "stages", "chunks")]
    return f"{schedule.kind} ({', '.join(marks)})" if marks else str(schedule.kind)
