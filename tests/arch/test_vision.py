"""An encoder of images beside the same one in PyTorch: parameters, FLOP, what is kept, and what
layouts change.

Shapes: P patches, V numbers of a patch, D width of the encoder, H heads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.arch.models import catalog
from tests.arch.torch_mixers import flop_of, keeping, kept_by, torch_parameters
from tests.planning.examples import scenario
from twin.arch.blocks import vision as block
from twin.arch.count import flop_per_token, parameters
from twin.arch.ops import Exchange, Item, Layer, Op, Shape
from twin.arch.stack import layers, parameters_of
from twin.engine import lower, plan
from twin.engine.simulate import simulate
from twin.spec.model import DenseFfn, GroupedAttention, LoraSpec, ModelSpec
from twin.spec.vision import ImagesSpec, VisionSpec

QWEN = VisionSpec(
    layers=4, hidden=32, heads=2, ffn="swiglu", width=24, norm="rmsnorm", values=18, merge=4,
    window=16, full_every=2,
)  # fmt: skip
SIGLIP = VisionSpec(
    layers=2, hidden=32, heads=2, ffn="gelu", width=64, values=12, patch_bias=True, positions=64
)
IMAGES = ImagesSpec(patches=128, image=64)


def model(vision: VisionSpec) -> ModelSpec:
    return ModelSpec(
        name="tiny-vision",
        layers=2,
        hidden=48,
        vocab=96,
        attention=GroupedAttention(kind="gqa", heads=4, kv_heads=2, head_dim=8),
        ffn=DenseFfn(kind="swiglu", width=64),
        vision=vision,
    )


def shape(ranks: int = 1, sequences: int = 1, **images: Any) -> Shape:
    return Shape(sequences, 96, tensor=ranks, images=IMAGES.model_copy(update=images))


def over(how: str) -> Shape:
    """Two tensor ranks, which do that."""
    return shape(2, tensor=how)


def first(vision: VisionSpec, given: Shape) -> Layer:
    return layers(model(vision), given)[0]


def items(vision: VisionSpec, given: Shape) -> list[Item]:
    return [one for one in first(vision, given).items if one.name.startswith("vision_")]


def ops(vision: VisionSpec, given: Shape) -> list[Op]:
    return [one for one in items(vision, given) if isinstance(one, Op)]


def forward(vision: VisionSpec, given: Shape) -> float:
    return sum(one.forward.flop for one in ops(vision, given))


def backward(vision: VisionSpec, given: Shape) -> float:
    return sum(one.backward.flop + one.weight.flop for one in ops(vision, given))


def kept(vision: VisionSpec, given: Shape) -> float:
    return sum(one.saved for one in items(vision, given))


def normed(vision: VisionSpec) -> nn.Module:
    """A fused norm: it keeps its input, which another keeps too, and nothing per value."""
    made = nn.RMSNorm if vision.norm == "rmsnorm" else nn.LayerNorm
    return made(vision.hidden)


class Attend(nn.Module):
    """Both ways within runs of so many patches."""

    def __init__(self, vision: VisionSpec, near: int) -> None:
        super().__init__()
        self.heads, self.near, hidden = vision.heads, near, vision.hidden
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=vision.bias)
        self.out = nn.Linear(hidden, hidden, bias=vision.bias)

    def forward(self, x_PD: Tensor) -> Tensor:
        return self.out(self.core(self.qkv(x_PD)))

    def core(self, qkv: Tensor) -> Tensor:
        runs = qkv.view(-1, self.near, 3, self.heads, qkv.shape[1] // 3 // self.heads)
        q, k, v = runs.permute(2, 0, 3, 1, 4).unbind()
        made = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return made.transpose(1, 2).reshape(qkv.shape[0], -1)


class Flash(Attend):
    """As a flash kernel keeps it: queries, keys, values, output, and a statistic per row."""

    def core(self, qkv: Tensor) -> Tensor:
        statistics = torch.zeros(qkv.shape[0], self.heads)
        width = qkv.shape[1] // 3
        return keeping(lambda x: x[:, :width] * 1, output=True, more=(statistics,))(qkv)


class Layers(nn.Module):
    """Norm, attention, norm, feed-forward block."""

    def __init__(self, vision: VisionSpec, near: int, kind: type[Attend]) -> None:
        super().__init__()
        hidden, width = vision.hidden, vision.width
        self.first, self.second = normed(vision), normed(vision)
        self.attend, self.gated = kind(vision, near), vision.ffn == "swiglu"
        self.up = nn.Linear(hidden, (1 + self.gated) * width, bias=vision.bias)
        self.down = nn.Linear(width, hidden, bias=vision.bias)

    def forward(self, x_PD: Tensor) -> Tensor:
        x_PD = x_PD + self.attend(self.first(x_PD))
        return x_PD + self.down(self.active(self.up(self.second(x_PD))))

    def active(self, x: Tensor) -> Tensor:
        if not self.gated:
            return functional.gelu(x)
        half = x.shape[-1] // 2
        return keeping(lambda both: both[..., :half] * 1)(x)


class Encoder(nn.Module):
    """Patches of whole images to rows as wide as the language model's."""

    def __init__(self, vision: VisionSpec, out: int = 48, kind: type[Attend] = Attend) -> None:
        super().__init__()
        hidden, wide = vision.hidden, vision.hidden * vision.merge
        self.patches = nn.Linear(vision.values, hidden, bias=vision.patch_bias)
        if vision.positions:
            self.positions = nn.Parameter(torch.zeros(vision.positions, hidden))
        near = [self.near(vision, at) for at in range(vision.layers)]
        self.layers = nn.Sequential(*(Layers(vision, one, kind) for one in near))
        self.norm, self.wide = normed(vision), wide
        self.merge = nn.Sequential(nn.Linear(hidden * vision.merge, wide), nn.GELU())
        self.out = nn.Linear(wide, out)

    @staticmethod
    def near(vision: VisionSpec, at: int) -> int:
        full = vision.full_every is not None and at % vision.full_every == vision.full_every - 1
        return IMAGES.image if vision.window is None or full else vision.window

    def forward(self, x_PV: Tensor) -> Tensor:
        made = self.norm(self.layers(self.patches(x_PV)))
        return self.out(self.merge(made.reshape(-1, self.wide)))


NONE: dict[str, Any] = {"vision": None}

BOTH = pytest.mark.parametrize("vision", [QWEN, SIGLIP], ids=["windows", "positions"])


@BOTH
def test_parameters_are_those_of_the_module(vision: VisionSpec):
    with_it, without = (
        parameters(model(vision).model_copy(update=change)) for change in ({}, NONE)
    )
    assert with_it.vision == torch_parameters(Encoder(vision)) == with_it.total - without.total


def test_models_with_their_encoders_have_the_published_parameters():
    """Hugging Face counts 8,292,166,656 of Qwen2.5-VL 7B and 73,405,560,320 of Qwen2-VL 72B, whose
    encoder has GeLU, layer norms and no windows."""
    assert parameters(catalog("qwen2.5-vl-7b")).total == 8_292_166_656
    older = VisionSpec(
        layers=32, hidden=1280, heads=16, ffn="gelu", width=5120, values=1176, merge=4
    )
    large = catalog("qwen2-vl-72b").model_copy(update={"vision": older})
    assert parameters(large).total == 73_405_560_320


@BOTH
def test_flop_are_those_that_pytorch_counts(vision: VisionSpec):
    """Products: 2 of the input's and the weight's gradient, but for pixels; attention that flash
    kernels compute again backward counts half as much more than PyTorch's here."""
    encoder, x = Encoder(vision), torch.randn(IMAGES.patches, vision.values)
    assert forward(vision, shape()) == flop_of(lambda: encoder(x))
    made = encoder(x).sum()
    core = sum(one.forward.flop for one in ops(vision, shape()) if one.kind == "attention")
    assert backward(vision, shape()) == flop_of(made.backward) + core / 2


@BOTH
def test_kept_bytes_are_those_of_pytorchs_autograd(vision: VisionSpec):
    """Beside them autograd keeps statistics of norms, as of any layer."""
    vision = vision.model_copy(update={"norm": "layernorm"})
    pixels = torch.randn(IMAGES.patches, vision.values, dtype=torch.bfloat16)
    found = kept_by(Encoder(vision, kind=Flash).bfloat16(), pixels.requires_grad_())
    statistics = (2 * vision.layers + 1) * IMAGES.patches * 2 * 2
    assert kept(vision, shape()) - pixels.nbytes == found - statistics


def test_an_encoder_is_in_the_stage_of_the_embedding_and_not_in_the_models_flop():
    with_it, without = model(QWEN), model(QWEN).model_copy(update=NONE)
    assert flop_per_token(with_it, 96) == flop_per_token(without, 96)
    counts = [parameters(each) for each in (with_it, without)]
    assert len({one.activated_with_head for one in counts}) == 1
    one, other = (layers(each, shape())[0].weights.total for each in (with_it, without))
    assert one - other == torch_parameters(Encoder(QWEN))
    assert layers(with_it, shape())[1:] == layers(without, shape())[1:]


def test_the_fullest_rank_has_so_many_more_patches():
    assert forward(QWEN, shape(fullest=1.5)) == 1.5 * forward(QWEN, shape())
    assert kept(QWEN, shape(sequences=2)) == 2 * kept(QWEN, shape())


def test_tensor_ranks_do_the_same_cut_matrices_or_share_images():
    def matrices(given: Shape) -> list[float]:
        return [one.forward.flop for one in ops(QWEN, given) if "merge" not in one.name][1:]

    one = shape()
    assert matrices(over("whole")) == matrices(one)
    halves = [flop / 2 for flop in matrices(one)]
    assert matrices(over("cut")) == halves
    assert forward(QWEN, over("shared")) == forward(QWEN, one) / 2


def test_matrices_that_are_cut_are_summed_and_shared_images_are_gathered():
    """Two sums of all patches each way in a layer; tokens of all ranks once."""

    def moved(how: str) -> list[float]:
        return [one.bytes for one in items(QWEN, over(how)) if isinstance(one, Exchange)]

    assert moved("cut") == [2 * 128 * 32] * 2 * QWEN.layers
    assert moved("shared") == [2 * 32 * 48]
    assert moved("whole") == []
    halves = {"vision.qkv", "vision.out", "vision.up", "vision.down"}
    table = block.placed(parameters_of(model(QWEN), "embedding"), over("cut").images)
    table = [row for row in table if row.part == "vision"]
    assert {row.name for row in table if row.cut != "replicated"} == halves


def test_of_a_frozen_encoder_only_the_merger_is_trained_and_keeps_anything():
    one, still = first(QWEN, shape()), first(QWEN, shape(frozen=True))
    merger = 128 * 128 + 128 * 48 + 128 + 48 + 32
    assert still.frozen.total == torch_parameters(Encoder(QWEN)) - merger
    assert still.frozen.total + still.weights.total == one.weights.total
    assert forward(QWEN, shape(frozen=True)) == forward(QWEN, shape())
    tokens, wide = 32, 128
    products = 2 * tokens * wide * (wide + 2 * 48)
    assert backward(QWEN, shape(frozen=True)) == products
    assert kept(QWEN, shape(frozen=True)) == 2 * tokens * wide * 3


def test_adapters_of_the_language_model_leave_the_encoder_frozen():
    given = replace(shape(), lora=LoraSpec(rank=4))
    assert backward(QWEN, given) == kept(QWEN, given) == 0
    assert forward(QWEN, given) == forward(QWEN, shape())


def test_recomputed_layers_keep_their_inputs_and_run_twice():
    rows = 2 * IMAGES.patches * QWEN.hidden
    ends = 2 * IMAGES.patches * QWEN.values + rows + 3 * rows  # pixels; norm, up, gelu of merger
    again = shape(recompute=True)
    assert kept(QWEN, again) == ends + QWEN.layers * rows
    within = sum(one.forward.flop for one in ops(QWEN, shape()) if one.name in LAYER)
    assert backward(QWEN, again) == backward(QWEN, shape()) + within


LAYER = {f"vision_{name}" for name in ("qkv", "attention", "out", "up", "down")}


@pytest.mark.parametrize("how", ["cut", "whole", "shared"])
def test_images_lengthen_a_step_and_fill_the_memory_of_the_first_stage(how: str):
    """With the whole stage for itself too."""
    changes = {"patches": 64, "image": 64, "tensor": how}
    frozen = changes | {"frozen": True}
    pipeline: dict[str, Any] = {"tensor": 2, "pipeline": 2, "layers": (0, 8)}
    text, both, full, still = (
        plan(scenario(model={"vision": QWEN.model_dump()}, parallel=pipeline, train=train))
        for train in (
            {},
            *({"images": one} for one in (changes, changes | {"fullest": 2.0}, frozen)),
        )
    )
    steps = [simulate(lower(one)).step_ns for one in (text, still, both, full)]
    assert steps == sorted(set(steps))
    peaks = [one.memory.stages[0].peak_bytes for one in (still, both, full)]
    assert peaks == sorted(set(peaks))


@pytest.mark.parametrize("how", ["cut", "whole", "shared"])
@pytest.mark.parametrize("frozen", [True, False])
def test_shapes_of_trained_matrices_are_told_to_optimizers_that_orthogonalise(
    how: str, frozen: bool
) -> None:
    """Muon asks for them; of a frozen encoder only the merger's two are trained."""
    given = shape(2, tensor=how, frozen=frozen)
    own = first(QWEN, given)
    shaped = sum(one.weights for one in own.matrices)
    assert shaped == own.weights.replicated_matrices + own.weights.tensor_matrices > 0
