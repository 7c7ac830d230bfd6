"""Laws of the searches on one small layout; `tests.properties.campaign` draws hundreds."""

from tests.properties.attack import Written
from tests.properties.searches import (
    Tight,
    best_of_all_splits,
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
