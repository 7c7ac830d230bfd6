"""Rules between the fields of a model."""

from typing import Any

import pytest
from pydantic import ValidationError

from twin.spec.model import ModelSpec, Moe, Rope, Yarn

SIZES: dict[str, Any] = {"experts": 16, "top_k": 4, "width": 8}


@pytest.mark.parametrize("groups", [(1, 1), (4, 1), (4, 4), (16, 4), (2, 2)])
def test_a_token_finds_its_experts_in_the_groups_that_it_may_visit(groups: tuple[int, int]):
    moe = Moe(**SIZES, groups=groups[0], top_groups=groups[1])
    assert moe.top_k <= moe.top_groups * moe.experts // moe.groups


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"groups": 3}, "16 experts do not fall into 3 groups"),
        ({"groups": 8}, "in 1 of 8 groups"),
        ({"groups": 8, "top_groups": 1}, "in 1 of 8 groups"),
        ({"groups": 4, "top_groups": 5}, "in 5 of 4 groups"),
        ({"top_groups": 2}, "in 2 of 1 groups"),
    ],
)
def test_groups_that_a_token_cannot_choose_from_are_refused(groups: dict[str, Any], said: str):
    with pytest.raises(ValidationError, match=said):
        Moe(**SIZES, **groups)


def test_a_plain_model_rotates_by_ten_thousand_and_is_not_stretched() -> None:
    assert Rope() == Rope(theta=10_000, yarn=None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("factor", 0.5),
        ("original_context", 4096),
        ("beta_slow", 33.0),
        ("mscale", 0.0),
        ("mscale_all_dim", -0.1),
    ],
)
def test_yarn_that_cannot_be_is_refused(field: str, value: float) -> None:
    fields: dict[str, Any] = {"factor": 32, "original_context": "4096tok", "beta_fast": 32}
    Yarn.model_validate(fields)
    with pytest.raises(ValidationError, match=field):
        Yarn.model_validate(fields | {field: value})


HYBRID: dict[str, Any] = {
    "name": "hybrid",
    "layers": 6,
    "hidden": 32,
    "vocab": 96,
    "attention": {"kind": "gqa", "heads": 4, "kv_heads": 2, "head_dim": 8, "window": 16},
    "ffn": {"kind": "swiglu", "width": 64},
    "moe": SIZES,
    "mixer": {"kind": "kda", "num_heads": 4, "head_dim": 8},
}


def test_a_pattern_repeats_to_the_last_layer_and_says_which_have_experts() -> None:
    pattern = ("kda+dense", "window+moe", "attention", "moe")
    model = ModelSpec.model_validate({**HYBRID, "pattern": pattern})
    assert [model.blocks(layer) for layer in range(5)] == [
        ("kda", "dense"),
        ("window", "moe"),
        ("attention", ""),
        ("", "moe"),
        ("kda", "dense"),
    ]
    assert [model.has_experts(layer) for layer in range(5)] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pattern": ("kda+experts",)}, "`kda\\+experts` names no blocks of this model"),
        ({"pattern": ("mamba2+dense",)}, "`mamba2\\+dense` names no blocks"),
        ({"pattern": ("kda+moe",), "moe": None}, "`kda\\+moe` names no blocks"),
        ({"pattern": ("kda+dense",), "mixer": None, "moe": None}, "names no blocks of this model"),
        ({"pattern": ("moe",), "moe": {**SIZES, "every": 2}}, "and `moe` says so, too"),
        ({"mixer": {"kind": "kda"}}, "num_heads"),
        ({"mixer": {"kind": "hyena"}}, "hyena"),
    ],
)
def test_a_pattern_names_blocks_that_the_model_has(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ModelSpec.model_validate(HYBRID | changes)


def test_a_model_without_later_fields_is_written_as_before_they_came() -> None:
    """So that hashes of scenarios stay."""
    plain = {key: value for key, value in HYBRID.items() if key != "mixer"}
    written = ModelSpec.model_validate(plain).model_dump()
    later = {"mixer", "pattern"}, {"chunked", "gated"}, {"ungated", "latent"}
    for fields, section in zip(later, (written, written["attention"], written["moe"]), strict=True):
        assert not fields & section.keys()
