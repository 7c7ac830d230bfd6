"""torchtitan's TOML and Megatron-Bridge's YAML, out and back: what comes back is what went out, but
for what the file says it leaves out."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import SMALL
from tests.command import Command
from twin.engine import plan
from twin.interop.export import bridge, torchtitan
from twin.interop.export.base import stamp_of_plan
from twin.interop.export.megatron.launch import launch
from twin.interop.importing import bridge as from_bridge
from twin.interop.importing import torchtitan as from_torchtitan
from twin.interop.importing.launch import SECTIONS, Source
from twin.interop.importing.megatron import understood
from twin.interop.importing.torchtitan import TABLE
from twin.loading import load
from twin.loading.files import read_data
from twin.planning.types import Plan
from twin.schedules.one_f_one_b import OneForwardOneBackward

SHIPPED = (
    "kimi-k2-256xh800",
    "deepseek-v3-2048xh800",
    "gpt-175b-64xa100-selective",
    "llama-3-405b-16384xh100",
    "qwen3-235b-256xh800",
)


@cache
def planned(name: str) -> Plan:
    return plan(load(name))


@cache
def titan_like() -> Plan:
    """A scenario that torchtitan can say whole."""
    base = planned("llama-3-405b-16384xh100").scenario
    parallel = base.parallel.model_copy(
        update={
            "pipeline": 1,
            "virtual": 1,
            "schedule": OneForwardOneBackward(kind="1f1b"),
            "layers": None,
            "zero": 3,
            "tensor": 8,
            "sequence_copies": True,
            "overlap_param_gather": False,
        }
    )
    memory = base.memory.model_copy(update={"fully_shard": True, "recompute": ("full",)})
    train = base.train.model_copy(
        update={
            "cross_entropy": "eager",
            "gc_interval": 50,
            "tokens": 1000 * base.train.global_batch,
        }
    )
    return plan(base.model_copy(update={"parallel": parallel, "memory": memory, "train": train}))


def back_of(found: Plan) -> Any:
    text = torchtitan.toml(torchtitan.exported(found).arguments)
    scenario = found.scenario
    source = Source(text, "b.toml", model=scenario.model, gpus=scenario.cluster.gpus)
    return from_torchtitan.read(source)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_keys_of_megatron_bridge_come_back_as_the_arguments_they_are(name: str) -> None:
    found = launch(planned(name))
    stamp = stamp_of_plan(planned(name).scenario, ["s.yaml"], "bridge")
    text = bridge.written(found, stamp, ".yaml")
    back = from_bridge.read(Source(text, "b.yaml"))
    same = understood(found.arguments, back.name)
    for section in SECTIONS:
        assert getattr(back, section) == getattr(same, section)
    assert back.tally.left_out == 0
    for loss in found.losses:
        assert str(loss) in text
    old = yaml.safe_load(text)  # YAML 1.1, as OmegaConf reads it
    assert isinstance(old["model"]["layernorm_epsilon"], float)
    assert isinstance(old["model"]["num_layers"], int)


@pytest.mark.parametrize("name", SHIPPED)
def test_what_a_toml_loses_is_what_it_says(name: str) -> None:
    found = torchtitan.exported(planned(name))
    scenario, back = planned(name).scenario, back_of(planned(name))
    differs = {
        f"{section}.{field}"
        for section in ("model", "parallel", "memory", "train")
        for field in type(getattr(scenario, section)).model_fields
        if getattr(getattr(scenario, section), field) != getattr(getattr(back, section), field)
    }
    said = {".".join(loss.path.split(".")[:2]) for loss in found.losses if "." in loss.path}
    assert differs == said
    reasons = read_data(Path(torchtitan.__file__).with_suffix(".yaml"))
    for loss in found.losses:
        assert any(f"{loss.path}.".startswith(f"{path}.") for path in reasons), loss.path


def test_what_torchtitan_can_say_comes_back_whole() -> None:
    before, after = titan_like().scenario, back_of(titan_like())
    assert before.parallel == after.parallel
    assert before.memory == after.memory
    assert before.train == after.train
    assert before.model == after.model


@given(
    tensor=st.sampled_from((1, 2, 8)),
    context=st.sampled_from((1, 2)),
    micro=st.sampled_from((1, 2)),
    zero=st.sampled_from((0, 3)),
    again=st.sampled_from(((), ("full",), ("alternate_products",))),
    gradients=st.sampled_from(("fp32", "bf16")),
    steps=st.integers(1, 10**6),
    scaling=st.sampled_from((None, "current", "row", "mx")),
    interval=st.integers(1, 1000),
)
@settings(max_examples=40, deadline=None)
def test_every_layout_of_torchtitan_comes_back(  # noqa: PLR0917
    tensor, context, micro, zero, again, gradients, steps, scaling, interval
) -> None:
    base = titan_like().scenario
    data = base.cluster.gpus // (tensor * context)
    parallel = base.parallel.model_copy(
        update={
            "tensor": tensor,
            "context": context,
            "micro_batch": micro,
            "zero": 3 if context > 1 else zero,
            "sequence_parallel": tensor > 1,
        }
    )
    batch = 2 * micro * data * base.train.sequence
    train = base.train.model_copy(
        update={
            "global_batch": batch,
            "tokens": steps * batch,
            "gradients": gradients,
            "gc_interval": interval,
            "precision": "bf16" if scaling is None else "fp8",
            "fp8_scaling": scaling or "block",
        }
    )
    memory = base.memory.model_copy(
        update={"recompute": again, "fully_shard": parallel.zero == 3, "offload": ()}
    )
    sections = {"parallel": parallel, "memory": memory, "train": train}
    found = Plan.__new__(Plan)
    object.__setattr__(found, "scenario", base.model_copy(update=sections))
    after = back_of(found)
    assert (after.parallel, after.memory, after.train) == (parallel, memory, train)


def test_the_table_of_the_importer_is_what_is_written() -> None:
    found = dict(torchtitan.exported(titan_like()).arguments)
    for key, value in TABLE.write(titan_like().scenario).items():
        if "expert" not in key:
            assert found[key] == value


def test_the_toml_is_toml_and_the_command_writes_it(twin_command: Command, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    for form, file in (("torchtitan", "s.toml"), ("bridge", "s2.yaml")):
        done = twin_command("export", "s.yaml", "--format", form, "-o", file, "--json")
        assert done.code == 0, done.err
        answer = json.loads(done.out)
        assert answer["format"] == form
        assert answer["losses"]
    read = tomllib.loads((tmp_path / "s.toml").read_text())
    assert read["training"]["seq_len"] > 0
    assert "Back: twin import bridge" in (tmp_path / "s2.yaml").read_text()
