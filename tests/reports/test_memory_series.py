"""Memory over the step: the ledger's numbers on the clock of the passes."""

from dataclasses import replace

import numpy as np
import pytest

from tests.reports.runs import RUNS, played
from twin.engine.program import COMPUTE
from twin.planning.footprint import Footprint, Held
from twin.planning.walk import walk
from twin.reports.memory_series import (
    WEIGHT_GRADIENTS,
    activations_by_op,
    memory_series,
    thinned,
)
from twin.schedules.base import Action


@pytest.mark.parametrize("name", RUNS)
def test_the_highest_point_of_every_role_is_the_peak_of_its_stages_ledger(name):
    planned, trace, _ = played(name)
    for role in range(len(trace.roles)):
        series = memory_series(planned, trace, role)
        ledger = planned.memory.stages[series.stage]
        assert series.peak_bytes == pytest.approx(ledger.peak_bytes, rel=1e-12)
        at = int(np.flatnonzero(series.times == series.peak_ns)[0])
        for category, size in ledger.categories.items():
            assert series.categories[category][at] == pytest.approx(size, abs=1.0)


@pytest.mark.parametrize("name", RUNS)
def test_only_what_stands_all_step_is_left_at_the_end(name):
    planned, trace, _ = played(name)
    for role in range(len(trace.roles)):
        series = memory_series(planned, trace, role)
        for category in ("activations", "logits", "working_set"):
            assert series.categories[category][-1] == pytest.approx(0.0, abs=1.0)


@pytest.mark.parametrize("name", RUNS)
def test_time_goes_on_and_no_category_is_negative(name):
    planned, trace, _ = played(name)
    for role in range(len(trace.roles)):
        series = memory_series(planned, trace, role)
        assert np.all(np.diff(series.times) > 0)
        assert series.times[0] == 0
        assert series.end_ns >= series.times[-1]
        assert all(np.all(sizes >= -1.0) for sizes in series.categories.values())


def test_the_peak_is_named_as_in_the_ledger():
    for name in ("1f1b", "gpipe", "interleaved", "k2"):
        planned, trace, _ = played(name)
        for role in range(len(trace.roles)):
            series = memory_series(planned, trace, role)
            assert series.peak_moment == planned.memory.stages[role].peak_moment


def test_a_trace_of_another_plan_is_refused():
    planned, _, _ = played("1f1b")
    _, other, _ = played("k2")
    with pytest.raises(ValueError, match="not of this plan"):
        memory_series(planned, other, 0)


@pytest.mark.parametrize("points", [1, 7, 40])
def test_a_thinned_series_keeps_its_peak_and_never_shows_less(points):
    planned, trace, _ = played("interleaved")
    series = memory_series(planned, trace, 0)
    few = thinned(series, points)
    assert len(few.times) <= points
    assert few.total.max() == series.total.max()
    shown = few.total[np.searchsorted(few.times, series.times, side="right") - 1]
    assert np.all(shown >= series.total - 1.0)


def test_a_short_series_is_not_thinned():
    planned, trace, _ = played("1f1b")
    series = memory_series(planned, trace, 0)
    assert thinned(series, len(series.times)) is series


@pytest.mark.parametrize("name", RUNS)
def test_activations_by_op_sum_to_the_ledgers_category(name):
    planned, _, _ = played(name)
    for stage, ledger in enumerate(planned.memory.stages):
        parts = activations_by_op(planned, stage)
        assert sum(parts.values()) == pytest.approx(ledger.categories["activations"], rel=1e-9)
        assert list(parts.values()) == sorted(parts.values(), reverse=True)


def test_full_recomputation_keeps_the_inputs_of_layers_and_of_the_embedding_only():
    planned, _, _ = played("recompute")
    assert set(activations_by_op(planned, 1)) == {"layer_input"}


def test_deferred_weight_gradients_hold_memory_of_their_own():
    planned, _, _ = played("k2")
    held = [activations_by_op(planned, stage) for stage in range(planned.mesh.pipeline)]
    assert any(WEIGHT_GRADIENTS in parts for parts in held)


def test_a_pair_is_as_full_as_both_of_its_passes():
    """By hand: a forward keeps 10 and needs 3 more while it runs; a backward of another micro-batch
    frees 10 and needs 5. Alone they hold 23 and 25, as a pair 28, from the backward on."""
    need = Footprint(
        kept=Held(activations=10),
        late=Held(),
        forward=Held(activations=10, working=3),
        backward=Held(activations=10, working=5),
        input_backward=Held(activations=10, working=5),
    )
    order = [Action("F", 0, 0), Action("F", 0, 1), Action("B", 0, 0)]
    alone = walk(order, {0: need})
    assert alone.during.sum(axis=1).tolist() == [13, 23, 25]
    pair = walk([order[0], replace(order[1], paired=True), order[2]], {0: need})
    assert pair.during.sum(axis=1).tolist() == [13, 10, 28]
    assert pair.left.sum(axis=1).tolist() == [10, 20, 10]


def test_a_deferred_weight_pass_frees_when_it_ends_not_before():
    planned, trace, _ = played("zb_h1")
    series, spans = memory_series(planned, trace, 0), trace.spans
    rows = (spans.role == 0) & (spans.name == trace.names.index("backward_weight"))
    starts = set(spans.start[(spans.role == 0) & (spans.stream == COMPUTE)].tolist())
    ends = [
        int(spans.end[rows & (spans.microbatch == batch)].max())
        for batch in np.unique(spans.microbatch[rows])
    ]
    alone = [end for end in ends if end not in starts]  # else the next pass fills up at once
    assert alone
    for end in alone:
        before, after = np.searchsorted(series.times, [end - 1, end], side="right") - 1
        assert series.total[before] > series.total[after]


def test_an_input_backward_ends_with_its_own_last_kernel():
    planned, trace, _ = played("zb_h1")
    series, spans = memory_series(planned, trace, 0), trace.spans
    rows = (spans.role == 0) & (spans.name == trace.names.index("backward_input"))
    ends = [int(spans.end[rows & (spans.microbatch == b)].max()) for b in range(4)]
    assert set(ends) <= set(series.times.tolist())


def test_what_is_on_the_host_comes_and_goes_between_device_and_host():
    """Activations are on one side or the other, and on both while they are copied; nothing of them
    is left at the end. States stay."""
    planned, trace, _ = played("offload")
    plain, _, _ = played("k2")
    for role in range(len(trace.roles)):
        series = memory_series(planned, trace, role)
        ledger = planned.memory.stages[series.stage]
        assert set(series.host) == set(ledger.host)
        for name, sizes in series.host.items():
            assert sizes.max() == pytest.approx(ledger.host[name], abs=1.0)
            assert sizes.min() == pytest.approx(0.0 if name == "activations" else sizes.max())
        assert series.host_total.max() == pytest.approx(ledger.host_bytes)
        both = series.categories["activations"] + series.host.get("activations", 0.0)
        assert both.max() >= ledger.kept_bytes - 1.0
    assert not memory_series(plain, trace, 0).host


def test_activations_by_op_are_those_on_the_device_only():
    """The first stage's dense layer is on the host then, and four chunks of a MoE layer are not;
    no weight gradient waits."""
    planned, _, _ = played("offload")
    parts = activations_by_op(planned, 0)
    assert {"dispatch_permute", "experts_up"} <= set(parts)
    assert not {"ffn_up", WEIGHT_GRADIENTS} & set(parts)
    stage = planned.memory.stages[0]
    assert sum(parts.values()) == stage.categories["activations"] < stage.kept_bytes


def test_a_thinned_series_keeps_the_hosts_peak_too():
    planned, trace, _ = played("offload")
    series = memory_series(planned, trace, 0)
    few = thinned(series, 5)
    assert few.host_total.max() == series.host_total.max()
    assert few.total.max() == series.total.max()
