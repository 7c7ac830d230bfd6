"""The JSON Schema takes what the loader takes, refuses what it refuses by shape, explains every
field, and is checked in fresh. `jsonschema`, an independent program, judges."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from twin.errors import ScenarioError
from twin.loading import load, resolve
from twin.loading.files import read_tree
from twin.loading.schema import reference_page, scenario_schema
from twin.loading.tree import plain

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))
TOY = (Path(__file__).parent / "workshop" / "toy.yaml").read_text()
FABRIC = "name: x, kind: rail_fat_tree, nodes_per_leaf: 4, spines: 4, efficiency: 0.9"
MODELINE = "# yaml-language-server: $schema=./scenario.schema.json"


@cache
def validator(folder: Path | None = None) -> Draft202012Validator:
    """Judges files beside a folder with a catalog of its own."""
    return Draft202012Validator(scenario_schema([folder] if folder else []))


def complaints(path: Path, folder: Path | None = None) -> list[str]:
    """What the schema finds wrong in a file, by place."""
    tree, _ = read_tree(path)
    assert tree is not None
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in validator(folder).iter_errors(plain(tree))
    ]


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field that a scenario may hold, by section and name."""
    schema = scenario_schema()
    yield from ((f"root.{key}", one) for key, one in schema["properties"].items())
    for name, section in schema["$defs"].items():
        for key, one in section.get("properties", {}).items():
            yield f"{name}.{key}", one


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(scenario_schema())


def test_the_checked_in_schema_is_fresh() -> None:
    """Else: `twin schema > scenarios/scenario.schema.json`."""
    text = (ROOT / "scenarios" / "scenario.schema.json").read_text()
    assert json.loads(text) == scenario_schema()


def test_the_checked_in_field_reference_is_fresh() -> None:
    """Else: `twin schema --format markdown > docs/fields.md`."""
    assert (ROOT / "docs" / "fields.md").read_text() == reference_page(scenario_schema())


def test_what_the_schema_says_does_not_depend_on_the_process() -> None:
    """The order of sets and of scanned folders must not reach the file."""
    code = "import json, twin.loading.schema as s; print(json.dumps(s.scenario_schema()))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
            cwd=ROOT,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_names_the_schema_and_satisfies_it(path: Path) -> None:
    assert path.read_text().splitlines()[0] == MODELINE
    assert complaints(path) == []


VALID = {
    "a member of an axis in full": ("schedule: 1f1b", "schedule: {kind: 1f1b}"),
    "no reserve of steps": ("tokens: 1M", "tokens: 1000000tok"),
    "a batch in tokens": ("global_batch: 16seq", "global_batch: 2048tok"),
    "expectations": ("schema: 1", 'schema: 1\nexpect: ["fits == true", "mfu > 35%", days<=40d]'),
    "a price": ("schema: 1", "schema: 1\ncost: {gpu_hour: 2.0USD}"),
    "no price": ("schema: 1", "schema: 1\ncost: null"),
    "a refined calibration": ("schema: 1", "schema: 1\ncalibration: {gemm: 0.7}"),
    "a sourced number": (
        "schema: 1",
        "schema: 1\ncalibration: {gemm: {value: 0.7, source: bench, kind: measured, note: ours}}",
    ),
    "an inline fabric": (
        "fabric: toy-fabric",
        f"fabric: {{{FABRIC}, hop_latency: {{value: 1us, kind: assumed, range: [0.5us, 2us]}}}}",
    ),
}


@pytest.mark.parametrize("case", VALID)
def test_what_loads_satisfies_the_schema(case: str, workshop: Path) -> None:
    old, new = VALID[case]
    assert TOY.count(old) == 1
    (workshop / "toy.yaml").write_text(TOY.replace(old, new))
    assert load("toy.yaml").name == "a toy run"
    assert complaints(workshop / "toy.yaml", workshop) == []


def test_a_file_that_extends_another_may_leave_out_anything(workshop: Path) -> None:
    mine = workshop / "mine.yaml"
    mine.write_text("extends: toy.yaml\ncluster: {node: {nic: {bandwidth: 200Gbps}}}\n")
    assert load("mine.yaml").cluster.node.nic.bandwidth == 25e9
    assert complaints(mine, workshop) == []
    mine.write_text(mine.read_text().replace("extends: toy.yaml\n", ""))
    found = complaints(mine, workshop)
    assert any("'schema' is a required property" in one for one in found)
    assert any("'fabric' is a required property" in one for one in found)


WRONG = {
    "an unknown key": ("pipeline: 4", "pipelin: 4", "parallel: "),
    "an unknown section": ("schema: 1", "schema: 1\nclusters: {}", "'clusters' was unexpected"),
    "a bare number": ("sequence: 128tok", "sequence: 128", "train.sequence: "),
    "an unknown unit": ("tokens: 1M", "tokens: 1Mtokens", "train.tokens: "),
    "a thousand tokens, or 1,024": ("sequence: 128tok", "sequence: 4ktok", "train.sequence: "),
    "a batch of neither unit": ("global_batch: 16seq", "global_batch: 16M", "train.global_batch: "),
    "a number in quotes": ("pipeline: 4", 'pipeline: "4"', "parallel.pipeline: "),
    "none where one is least": ("pipeline: 4", "pipeline: 0", "parallel.pipeline: "),
    "half a stage": ("pipeline: 4", "pipeline: 4.5", "parallel.pipeline: "),
    "a missing key": ("  optimizer: adamw\n", "", "'optimizer' is a required property"),
    "an unknown schedule": ("schedule: 1f1b", "schedule: 1f2b", "parallel.schedule: "),
    "an unknown kind": ("schedule: 1f1b", "schedule: {kind: 1f2b}", "parallel.schedule: "),
    "a setting of another kind": (
        "schedule: 1f1b",
        "schedule: {kind: 1f1b, extra_warmup: 1}",
        "parallel.schedule: ",
    ),
    "no kind": ("schedule: 1f1b", "schedule: {}", "'kind' is a required property"),
    "an unknown part": ("model: toy-model", "model: toy-modle", "model: "),
    "another version": ("schema: 1", "schema: 2", "schema: "),
    "text where a list belongs": ("schema: 1", "schema: 1\nexpect: fits", "expect: "),
    "an unknown key figure": ("schema: 1", "schema: 1\nexpect: [mfuu > 0.3]", "expect.0: "),
    "a wrong unit of a figure": ("schema: 1", "schema: 1\nexpect: [mfu > 1s]", "expect.0: "),
    "an equal figure": ("schema: 1", "schema: 1\nexpect: [days == 1d]", "expect.0: "),
    "an unpriced cost": ("schema: 1", "schema: 1\ncost: {}", "cost: {} is not valid"),
    "rent and purchase": (
        "schema: 1",
        "schema: 1\ncost: {gpu_hour: 2USD, purchase: h100-cluster-2024}",
        "cost: {'gpu_hour'",
    ),
    "half of an inline part": (
        "fabric: toy-fabric",
        "fabric: {name: mine, kind: rail_fat_tree}",
        "'spines' is a required property",
    ),
    "an unknown topology": (
        "fabric: toy-fabric",
        f"fabric: {{{FABRIC.replace('rail_fat_tree', 'torus')}, hop_latency: 1us}}",
        "cluster.fabric: ",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_by_shape_is_refused_by_schema_and_loader(case: str, workshop: Path) -> None:
    old, new, told = WRONG[case]
    assert TOY.count(old) == 1
    (workshop / "toy.yaml").write_text(TOY.replace(old, new))
    with pytest.raises(ScenarioError):
        load("toy.yaml")
    assert any(told in one for one in complaints(workshop / "toy.yaml", workshop))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_scenario_written_out_whole_satisfies_the_schema(path: Path, tmp_path: Path) -> None:
    """With every part inline and every default written, so that each field is met."""
    whole = tmp_path / "whole.yaml"
    more = ["expect=[fits == true]", "cost={gpu_hour: 2USD}"]
    whole.write_text(resolve(load(path, more)))
    assert complaints(whole) == []


def test_every_field_says_what_it_means() -> None:
    silent = [name for name, field in fields() if len(field["description"].split()) < 2]
    assert silent == []


def test_a_hover_shows_meaning_unit_and_default() -> None:
    known = dict(fields())
    assert known["GpuSpec.memory"]["description"] == (
        "Device memory that the driver exposes. Write bytes, such as `80GiB` or `85.5GB`."
    )
    assert known["ParallelSpec.pipeline"]["description"] == (
        "Pipeline stages. Write a whole number from 1. Default: `1`."
    )
    assert known["GroupedAttention.kind"]["description"].endswith("Write `gqa`.")


def test_an_editor_can_complete_names_and_choices() -> None:
    schema = scenario_schema()
    models = schema["properties"]["model"]["anyOf"][0]["enum"]
    assert {"kimi-k2", "gpt-175b"} <= set(models)
    schedules = schema["$defs"]["ParallelSpec"]["properties"]["schedule"]["anyOf"]
    named = {one["const"]: one["description"] for one in schedules if "const" in one}
    assert named["gpipe"] == "All forwards, then all backwards; one chunk per stage."


def test_every_section_refuses_unknown_keys() -> None:
    schema = scenario_schema()
    assert schema["additionalProperties"] is False
    for name, section in schema["$defs"].items():
        assert section["additionalProperties"] is False, name


def test_parts_beside_a_scenario_are_known_where_they_are_asked_for(workshop: Path) -> None:
    assert complaints(workshop / "toy.yaml", workshop) == []
    assert any(one.startswith("model: ") for one in complaints(workshop / "toy.yaml"))
