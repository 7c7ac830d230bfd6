"""Models of rows that are a catalog model with other sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.evidence.validate.rows import row
from twin.evidence.validate.scenario_parts import model_changes, model_of
from twin.evidence.validate.steps import settled
from twin.evidence.validate.suite import PublishedRow, Unreadable
from twin.evidence.validate.training import express


def named(model: Any, models: dict[str, Any] | None = None, **fields: Any) -> PublishedRow:
    made = row({}, gpu="H100", model=model, **fields)
    return PublishedRow(made.fields, models or {})


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("deepseek-v3-5layers", "deepseek-v3"),
        ("qwen3-235b-a22b-5-layers", "qwen3-235b-a22b"),
        ("llama3-8b-l5", "llama3-8b"),
        ("mixtral-8x7b (5 layers)", "mixtral-8x7b"),
    ],
)
def test_a_name_says_how_many_layers_a_model_has(name: str, base: str) -> None:
    assert (model_of(named(name)), model_changes(named(name))) == (base, {"layers": 5})


@pytest.mark.parametrize("name", ["grok1-314b-16layers", "llama3-8b", "gpt-22b"])
def test_a_model_of_the_catalog_is_no_variant(name: str) -> None:
    assert (model_of(named(name)), model_changes(named(name))) == (name, {})


def test_a_variant_of_no_known_model_is_refused() -> None:
    with pytest.raises(Unreadable, match="nobody tells what the model strange-4layers is"):
        model_of(named("strange-4layers"))


def test_a_model_is_another_but_for_some_sizes() -> None:
    models = {"small": {"same_as": "deepseek-v3", "layers": 6, "dense_layers": 1, "mtp_layers": 0}}
    own = named("small", models)
    changes = {"layers": 6, "moe": {"first_dense_layers": 1}, "mtp_layers": 0}
    assert (model_of(own), model_changes(own)) == ("deepseek-v3", changes)


def test_a_row_says_how_many_layers_ran() -> None:
    assert model_changes(named("llama3-70b", layers=8)) == {"layers": 8}


def test_the_scenario_has_as_many_layers_and_is_cut_like_them() -> None:
    own = PublishedRow(
        {
            "id": "made",
            "source": "made",
            "system": {"gpu": "H100", "gpus": 16},
            "model": "llama3-70b-8layers",
            "parallelism": {"tp": 4, "pp": 2},
            "precision": "BF16",
            "gbs": 16,
            "mbs": 1,
            "seq": 4096,
            "metrics": {"step_s": 1.0},
        },
        {},
    )
    scenario = settled(express(own))[1]
    assert scenario.model.layers == 8
    assert scenario.model.hidden == 8192
