"""Models that no block can run are refused by the names of their fields."""

from __future__ import annotations

import pytest

from reference.model import Transformer
from twin.errors import ScenarioError
from twin.loading import load_part


def test_everything_that_cannot_run_is_named_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        Transformer(load_part("models", "gpt-175b").spec, device="meta")
    fields = {problem.path for problem in caught.value.problems}
    assert {"model.norm", "model.ffn.kind"} <= fields
    assert {problem.code for problem in caught.value.problems} == {"TW270"}


def test_grouped_query_models_run() -> None:
    model = Transformer(load_part("models", "llama3-8b").spec, device="meta")
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248
