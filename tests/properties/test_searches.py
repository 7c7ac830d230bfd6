"""Laws of the searches on one small layout, and of splits on random ones;
`tests.properties.campaign` draws hundreds."""

import pytest
from hypothesis import given, settings

from tests.properties.attack import UNCHECKED, Written
from tests.properties.searches import (
    Tight,
    best_of_all_splits,
    few,
    many,
    no_slower_stages,
    no_worse_split,
)

MODEL = {
    "name": "m",
    "layers": 4,
    "hidden": 1024,
    "vocab": 128256,
    "attention": {"kind": "gqa", "heads": 16, "kv_heads": 8, "head_dim": 64},
    "ffn": {"kind": "swiglu", "width": 3072},
}
TRAIN = {"tokens": "10B", "global_batch": "8seq", "sequence": "2048tok", "optimizer": "adamw"}
SMALL = Written(
    {
        "model": MODEL,
        "cluster": {"node": "h800-8gpu", "nodes": 1, "fabric": "rail-fat-tree-400g"},
        "parallel": {"pipeline": 2, "virtual": 1, "schedule": {"kind": "1f1b"}},
        "memory": {"recompute": [], "offload": []},
        "train": TRAIN,
    }
)
"""Four layers and a large head on two stages."""


def test_the_search_for_a_split_finds_what_exhaustion_finds() -> None:
    assert best_of_all_splits(SMALL) is None
    assert no_worse_split(SMALL) is None


def test_stages_that_choose_are_no_slower_than_a_uniform_policy() -> None:
    assert no_slower_stages(Tight((SMALL, 0.5))) is None


@settings(max_examples=10, suppress_health_check=UNCHECKED)
@given(many())
def test_a_plan_that_names_no_split_has_none_that_is_worse_than_the_usual_ones(attack):
    no_worse_split(attack)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=UNCHECKED)
@given(many())
def test_two_hundred_large_plans_have_no_worse_split(attack):
    no_worse_split(attack)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=UNCHECKED)
@given(few())
def test_the_search_for_a_split_finds_the_best_of_two_hundred_small_plans(attack):
    best_of_all_splits(attack)
