"""An order that is written out is the order that it was, and what cannot run is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.planning.examples import scenario
from tests.schedules.player import play
from tests.schedules.test_orders import SETTINGS, schedule_of
from twin.engine import lower, plan, simulate
from twin.errors import ScenarioError
from twin.loading import load
from twin.schedules.base import Schedule
from twin.schedules.custom import Custom, custom, text_of
from twin.schedules.notation import turns_of

ONE_F_ONE_B = ("0F [0F 0B] 0B", "[1F 1B] 1F 1B")
"""1F1B of two stages."""


def of(*orders: str, **fields: Any) -> Custom:
    own: dict[str, Any] = {"version": 1, "stages": len(orders), "chunks": 1, "orders": orders}
    return Custom.model_validate(own | fields)


def written_out(
    schedule: Schedule, stages: int, chunks_per_stage: int, microbatches: int
) -> Custom:
    chunk_map = schedule.chunk_map(stages, chunks_per_stage)
    orders = schedule.order(stages, chunks_per_stage, microbatches)
    words = [tuple(turns_of(order)) for order in orders]
    return custom(words, chunk_map, post_validation=schedule.staggered)


def fault(schedule: Custom, microbatches: int = 4) -> str:
    (found,) = schedule.problems(schedule.stages, schedule.chunks, microbatches)
    return f"{found.field}: {found.message}; {found.hint}"


SHAPES = list(product((1, 2, 3, 4, 8), (1, 2, 3), (1, 2, 4, 6, 8, 12, 24, 32)))


@pytest.mark.parametrize("name", SETTINGS)
def test_every_known_order_written_out_is_the_same_order(name: str) -> None:
    """Also with more micro-batches, as far as its steady state was seen."""
    known = schedule_of(name)
    for stages, chunks, microbatches in SHAPES:
        shape = stages, chunks, microbatches
        if known.problems(*shape):
            continue
        own = written_out(known, *shape)
        assert own.chunk_map(*shape[:2]) == known.chunk_map(*shape[:2])
        assert own.staggered == known.staggered
        assert own.order(*shape) == known.order(*shape)
        period = own.period(*shape) or 0
        longer = stages, chunks, microbatches + period
        if period and period == known.period(*shape):
            assert own.order(*longer) == known.order(*longer)


def test_kimi_k2s_order_of_a_thousand_micro_batches_fits_on_a_page() -> None:
    own = written_out(schedule_of("kimi-k2"), 16, 4, 1024)
    assert own.period(16, 4, 1024) == 16
    assert sum(map(len, own.orders)) < 6000


def test_1f1b_by_hand() -> None:
    own = of(*ONE_F_ONE_B)
    assert own.order(2, 1, 5) == schedule_of("1f1b").order(2, 1, 5)
    assert play(own, (2, 1, 3)).length == play(schedule_of("1f1b"), (2, 1, 3)).length


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_is_the_same_to_the_nanosecond(name: str) -> None:
    known = schedule_of(name)
    shape = (2, 2, 8) if known.kind == "interleaved_1f1b" else (2, 1, 8)
    moe = {"moe": {"experts": 16, "top_k": 2, "width": 64, "first_dense_layers": 1}}
    small = scenario(moe, {"pipeline": 2, "virtual": shape[1], "expert": 2})
    small = small.model_copy(
        update={"train": small.train.model_copy(update={"global_batch": 64 * 64})}
    )
    steps = []
    for schedule in (known, written_out(known, *shape)):
        layout = small.parallel.model_copy(update={"schedule": schedule})
        made = plan(small.model_copy(update={"parallel": layout}))
        assert made.microbatches == shape[2]
        steps.append((simulate(lower(made)).step_ns, made.memory.stages))
    assert steps[0] == steps[1]


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (of("0F 0B", "1F 1B", chunks=2), "parallel.schedule.orders: stage 0: forwards of chunk 2"),
        (of("0F*2 0B", "1F 1B"), "backwards of chunk 0 come another number of times"),
        (of("0F 0B 1F", "1F 1B"), "stage 0: it runs 1F, and holds chunks 0"),
        (of("0F 0B", "1B 1F"), "stage 1: turn 1 is 1B, before its 1F"),
        (of("0F 0I", "1F 1B"), "stage 0: 0I is there without its 0W"),
        (of("0F 0W 0I", "1F 1B"), "stage 0: turn 2 is 0W, before its 0I"),
        (of("0F 0X", "1F 1B"), "stage 0: `0X` is no pass: write 3F, 3B, 3I, 3W, or a pair 3F&0B"),
        (of("0F (0B", "1F 1B"), "stage 0: a bracket is not closed"),
        (of("0F*b 0B", "1F 1B"), "stage 0: `0F*b` repeats no whole number of times"),
        (of("0F [0B] [0F]", "1F 1B"), "stage 0: write one steady state in brackets, or none"),
        (of("(0F)*9999999 0B", "1F 1B"), "stage 0: there are more than 1,000,000 turns"),
        (of("", ""), "stage 0: there are no passes"),
        (of("0F 0B", "1F 1B", placement="v"), "placement v has chunks: 2, not 1"),
        (of("0F 0B", "1F 1B"), "of 1 micro-batches, not 4; make the batch 1"),
        (of(*ONE_F_ONE_B), None),
        (of("0F*2 [0F*2 0B*2] 0B*2", "[1F*2 1B*2] 1F*2 1B*2"), None),
        (of("0F 0B 0F 0B", "1F*2 1B*2"), "deadlock: stage 0 waits for ever before 0B of"),
        (of("0F*2 [0F&0B] 0B*2", "1F [1F&1B] 1F&1B 1B"), None),
        (of("0F [0F&0B] 0B", "[1F&1B] 1F 1B"), "deadlock"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(schedule: Any, said: str | None) -> None:
    microbatches = 2 if said and "deadlock" in said else 4
    if said is None:
        assert schedule.problems(schedule.stages, schedule.chunks, microbatches) == []
    else:
        assert said in fault(schedule, microbatches)


def test_another_shape_names_the_field_and_the_nearest_that_goes() -> None:
    own = of("0F*2 [0F*2 0B*2] 0B*2", "[1F*2 1B*2] 1F*2 1B*2")
    assert [one.field for one in own.problems(4, 2, 4)] == ["parallel.pipeline", "parallel.virtual"]
    (found,) = own.problems(2, 1, 7)
    assert found.field == "train.global_batch"
    assert found.message == (
        "this custom schedule is of 2 micro-batches, or more by any multiple of 2, not 7"
    )
    assert found.hint == "make the batch 6 micro-batches per data-parallel rank"


def test_chunks_in_a_v_and_back_run() -> None:
    """Two stages with chunks 0 and 3, 1 and 2: ZB-V's placement."""
    own = of("0F 3F 3I 3W 0I 0W", "1F 2F 2B 1B", chunks=2, placement="v")
    assert own.problems(2, 2, 1) == []
    assert play(own, (2, 2, 1)).length == 11


BASE = """
schema: 1
extends: gpt-175b-64xa100-selective.yaml
name: mine
parallel: {virtual: 1, schedule: orders/found.yaml}
"""


def test_a_scenario_names_the_file_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    folder.mkdir()
    own = written_out(schedule_of("1f1b"), 8, 1, 64)
    folder.joinpath("found.yaml").write_text(text_of(own))
    file = tmp_path / "mine.yaml"
    file.write_text(BASE)
    assert load(file).parallel.schedule == own
    folder.joinpath("found.yaml").write_text(text_of(own).replace("stages: 8", "stages: eight"))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert problem.path == "parallel.schedule.stages"
    assert problem.origin is not None
    assert (Path(problem.origin.file).name, problem.origin.line) == ("found.yaml", 3)
    folder.joinpath("found.yaml").unlink()
    with pytest.raises(ScenarioError, match=r"found\.yaml` cannot be read"):
        load(file)
