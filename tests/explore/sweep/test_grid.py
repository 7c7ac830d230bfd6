"""Grids: which points they are, and that a point is what the loader makes of the same `--set`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from twin.errors import ScenarioError, UsageError
from twin.explore.sweep.grid import (
    Grid,
    PointMaker,
    ScenarioSource,
    check_values,
    grid_of,
    read_axes,
)
from twin.explore.sweep.points import PointOutcome, SweepPoint, problem_of
from twin.explore.sweep.sweep import refuse_size
from twin.loading import load, resolve, scenario_hash


@given(
    axes=st.dictionaries(
        st.sampled_from(["a", "b.c", "d"]),
        st.lists(st.integers(), min_size=1, max_size=4),
        max_size=3,
    ),
    listed=st.lists(st.dictionaries(st.sampled_from(["a", "z"]), st.integers(), min_size=1)),
)
def test_a_grid_is_every_combination_then_what_is_listed(
    axes: dict[str, list[int]], listed: list[dict[str, int]]
):
    grid = Grid({path: tuple(values) for path, values in axes.items()}, tuple(listed))
    points = list(grid)
    assert len(points) == grid.size
    crossed = points[: len(points) - len(listed)]
    assert points[len(crossed) :] == listed
    assert all(point.keys() == axes.keys() for point in crossed)
    for path, values in axes.items():
        for value in set(values):
            share = sum(point[path] == value for point in crossed)
            assert share * len(values) == len(crossed) * values.count(value)


CHANGES: dict[str, list[object]] = {
    "parallel.pipeline": [1, 2, 4],
    "parallel.schedule": ["gpipe", "1f1b", {"kind": "interleaved_1f1b", "extra_warmup": 1}],
    "parallel.layers": [None],
    "memory.recompute": [["full"], ["attention_core"], []],
    "train.global_batch": ["16seq", "32768tok", "6000tok"],
    "train.sequence": ["4096tok", "3000tok"],
    "cluster.node": ["h800-8gpu", "a100-80gb-8gpu-8x200g"],
    "cluster.nodes": [2, 4],
    "cluster.fabric": ["rail-fat-tree-400g"],
    "cost.gpu_hour": ["3.0USD"],
    "train.optimizer.kind": ["adamw"],
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    values=st.fixed_dictionaries(
        {}, optional={path: st.sampled_from(values) for path, values in CHANGES.items()}
    )
)
def test_a_point_is_the_scenario_that_set_makes_of_the_same_values(
    source: ScenarioSource, values: dict[str, object]
):
    point = PointMaker(source).point(values)
    sets = [f"{path}={json.dumps(value)}" for path, value in values.items()]
    try:
        expected = scenario_hash(load(source.path, sets))
    except ScenarioError as error:
        expected = error.problems[0].code
    found = point.code if isinstance(point, PointOutcome) else hash_of(point)
    assert found == expected


def test_values_that_are_only_right_together_make_a_point(source: ScenarioSource):
    maker = PointMaker(ScenarioSource(source.path, ("train.global_batch=16384tok",)))
    point = maker.point({"train.sequence": "3000tok", "train.global_batch": "6000tok"})
    assert not isinstance(point, PointOutcome)
    assert point.scenario().train.global_batch_sequences == 2
    alone = maker.point({"train.sequence": "3000tok", "parallel.tensor": 4})
    assert isinstance(alone, PointOutcome)
    assert (alone.code, alone.path) == ("TW017", "train.global_batch")


def hash_of(point: SweepPoint) -> str:
    """The hash of a point's scenario, or the code of what is wrong with it."""
    try:
        return scenario_hash(point.scenario())
    except ValidationError as error:
        return problem_of(error).code


def test_another_gpu_brings_its_own_calibration(source: ScenarioSource, file: Path):
    text = file.read_text().replace("calibration: a100-megatron\n", "")
    file.write_text(text)
    point = PointMaker(source).point({"cluster.node": "h800-8gpu"})
    assert not isinstance(point, PointOutcome)
    assert (
        point.scenario().calibration.name == load(file, ["cluster.node=h800-8gpu"]).calibration.name
    )
    assert point.scenario().calibration.name != load(file).calibration.name


def test_points_of_plain_values_share_one_base(source: ScenarioSource):
    maker = PointMaker(source)
    one, two = (maker.point({"cluster.nodes": count}) for count in (2, 4))
    assert not isinstance(one, PointOutcome)
    assert not isinstance(two, PointOutcome)
    assert one.base is two.base


def wrong(file: Path, *grid: str) -> list[tuple[str, str]]:
    """Codes and places of what is wrong with a grid."""
    scenario, axes = load(file), read_axes(grid)
    try:
        check_values(ScenarioSource(str(file)), scenario, grid_of(scenario, axes), axes)
    except (ScenarioError, UsageError) as error:
        return [
            (problem.code, problem.origin.text[problem.origin.column - 1 :][: problem.origin.width])
            for problem in error.problems
            if problem.origin
        ]
    return []


def test_wrong_paths_and_values_are_told_once_at_their_places(file: Path):
    found = wrong(
        file, "parallel.pipelin=4,8", "train.sequence=2048,4096tok", "cluster.node=h800-8gp"
    )
    assert found == [("TW010", "parallel.pipelin"), ("TW012", "2048"), ("TW006", "h800-8gp")]


def test_what_is_wrong_only_together_is_left_to_the_points(file: Path):
    assert wrong(file, "train.global_batch=12288tok", "train.sequence=4096tok,3000tok") == []
    assert wrong(file, "train.sequence=3000tok", "train.global_batch=6000tok") == []


def test_a_setting_of_a_schedule_that_another_axis_brings_is_right(file: Path):
    kinds = "parallel.schedule.kind=1f1b,interleaved_1f1b"
    assert wrong(file, kinds, "parallel.schedule.extra_warmup=0,1") == []
    assert wrong(file, kinds, "parallel.schedule.extra_warmpu=0") == [
        ("TW010", "parallel.schedule.extra_warmpu")
    ]


def test_what_is_wrong_in_the_section_stands_in_the_file(file: Path):
    file.write_text(
        f"{file.read_text()}"
        "sweep:\n  grid:\n    parallel.pipelin: [4]\n  points:\n    - {cluster.nodes: many}\n"
    )
    scenario = load(file)
    with pytest.raises(ScenarioError) as caught:
        check_values(ScenarioSource(str(file)), scenario, grid_of(scenario, ()), ())
    first, second = caught.value.problems
    assert first.origin is not None
    assert second.origin is not None
    assert (first.code, first.origin.file, first.origin.text.strip()) == (
        "TW010",
        str(file),
        "parallel.pipelin: [4]",
    )
    assert second.code == "TW014"
    assert "many" in second.origin.text


def test_flags_add_axes_and_take_the_place_of_those_of_the_section(file: Path):
    section = "sweep: {grid: {cluster.nodes: 2..8:x2, parallel.pipeline: [1]}}\n"
    file.write_text(file.read_text() + section)
    grid = grid_of(load(file), read_axes(["parallel.pipeline=2,4", "parallel.tensor=8"]))
    assert grid.axes == {
        "cluster.nodes": (2, 4, 8),
        "parallel.pipeline": (2, 4),
        "parallel.tensor": (8,),
    }


SECTION = """\
sweep:
  grid:
    parallel.schedule: [1f1b, {kind: interleaved_1f1b, extra_warmup: 1}]
    memory.recompute: [[full], [], null]
    train.global_batch: 8seq..32seq:x2
  points:
    - {cluster.nodes: 4, cluster.node: h800-8gpu}
    - {memory.offload: [activations]}
  show: [gpu_hours]
  fidelity: events
"""


def test_a_section_is_written_out_so_that_it_loads_to_the_same(file: Path, tmp_path: Path):
    file.write_text(file.read_text() + SECTION)
    first = load(file)
    assert first.sweep is not None
    other = tmp_path / "other.yaml"
    other.write_text(resolve(first))
    assert load(other).sweep == first.sweep
    assert load(other) == first


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ("{grid: {parallel.pipeline: 4}}", "TW402"),
        ("{grid: {parallel.pipeline: []}}", "TW402"),
        ("{grid: {'a b': [1]}}", "TW402"),
        ("{grid: {parallel.pipeline: 8..4}}", "TW402"),
        ("{points: [{}]}", "TW402"),
        ("{show: [mfuu]}", "TW051"),
        ("{gird: {}}", "TW010"),
        ("{fidelity: group}", "TW016"),
    ],
)
def test_a_section_that_says_no_sweep_is_refused(file: Path, section: str, code: str):
    file.write_text(f"{file.read_text()}sweep: {section}\n")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert [problem.code for problem in caught.value.problems] == [code]
    assert caught.value.problems[0].hint


def test_a_sweep_of_nothing_or_of_too_much_says_so():
    with pytest.raises(UsageError, match="TW403"):
        refuse_size(Grid({}), 10)
    with pytest.raises(UsageError, match=r"12 points \(3 x 4\) are more than the limit of 11"):
        refuse_size(Grid({"a": (1, 2, 3), "b": (1, 2, 3, 4)}), 11)
    refuse_size(Grid({"a": (1, 2, 3), "b": (1, 2, 3, 4)}), 12)
