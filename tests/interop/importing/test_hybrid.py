"""Hybrids as Megatron-LM's arguments, both ways."""

from __future__ import annotations

import pytest

from twin.arch.count import parameters
from twin.errors import UsageError
from twin.interop.importing.megatron import understood
from twin.interop.importing.megatron.launch_file import Argument, arguments_of
from twin.interop.model_arguments import model_arguments
from twin.loading import load_part
from twin.spec.model import ModelSpec

NAMES = [
    "nemotron-3-nano-30b-a3b",
    "nemotron-3-super-120b-a12b",
    "nemotron-3-super-120b-a12b-mtp",
]
RUN = "--seq-length 4096 --micro-batch-size 1 --global-batch-size 8 --train-iters 9 --bf16"
SMALL = "--hidden-size 512 --num-attention-heads 8 --padded-vocab-size 1024 --swiglu"


def understood_of(more: str, known: tuple[Argument, ...] = ()) -> ModelSpec:
    said, _ = arguments_of((word, None) for word in f"{RUN} {more}".split())
    return understood((*known, *said), "hybrid").model


@pytest.mark.parametrize("name", NAMES)
def test_a_hybrid_of_the_catalog_comes_back_from_its_arguments(name: str) -> None:
    model: ModelSpec = load_part("models", name).spec
    again = understood_of("", model_arguments(model))
    assert (again.pattern, again.mixer, again.layers) == (
        model.pattern,
        model.mixer,
        model.layers,
    )
    assert again.moe is not None
    assert again.moe.ungated
    assert parameters(again).total == parameters(model).total


def test_letters_are_blocks_and_stages_are_left_out() -> None:
    model = understood_of(f"{SMALL} --hybrid-layer-pattern MM*-|MM*-/M*/M* --mamba-num-heads 16")
    assert model.pattern == ("mamba2", "mamba2", "attention", "dense") * 2
    assert (model.layers, model.mtp_layers) == (8, 2)
    assert (model.mtp_pattern, model.mtp_shared) == (("mamba2", "attention"), False)
    assert model.mixer is not None
    assert model.mixer.model_dump()["num_heads"] == 16


def test_delta_nets_have_the_usual_heads() -> None:
    mixer = understood_of(f"{SMALL} --hybrid-layer-pattern G*-G").mixer
    assert mixer is not None
    said = {"kind": "gated_delta", "key_heads": 16, "value_heads": 32}
    assert said.items() <= mixer.model_dump().items()


def test_two_mixers_in_one_model_are_refused() -> None:
    with pytest.raises(UsageError, match="Mamba and delta nets"):
        understood_of(f"{SMALL} --hybrid-layer-pattern MG*-")


def test_layers_that_no_argument_says_are_refused_and_not_forgotten() -> None:
    with pytest.raises(UsageError, match="no arguments of Megatron-LM say"):
        model_arguments(load_part("models", "qwen3-next-80b-a3b").spec)
