"""The model has the tensors that the simulator counts, and the presets are what they say."""

from __future__ import annotations

import re

import pytest
import torch

from reference.convert.config import tensors
from reference.model import Transformer
from tests.reference.model.peers import GROUPED, LATENT, changed
from twin.arch.count import parameters
from twin.loading import load_part
from twin.loading.files import shipped_folder
from twin.spec.model import ModelSpec

PRESETS = ("kimi-k2-nano", "kimi-k2-tiny", "kimi-k2-small")
TOTALS = {
    "kimi-k2": 1_026_408_232_448,
    "deepseek-v3": 671_026_419_200,
    "kimi-k2-nano": 2_137_648,
    "kimi-k2-tiny": 16_770_256,
    "kimi-k2-small": 3_093_375_664,
}
VARIANTS = {
    "latent": changed(LATENT),
    "full rank, no bias": changed(
        LATENT, attention__q_lora_rank=None, moe__correction_bias=False, moe__shared_experts=2
    ),
    "grouped": changed(GROUPED),
    "tied, norms over heads": changed(GROUPED, attention__qk_norm=True, tied_embeddings=True),
}


def spec_of(name: str) -> ModelSpec:
    """A model of the catalog without prediction layers, which the reference has not."""
    return load_part("models", name).spec.model_copy(update={"mtp_layers": 0})


@pytest.mark.parametrize("name", TOTALS)
def test_the_model_has_the_published_or_stated_number_of_parameters(name: str) -> None:
    spec = spec_of(name)
    model = Transformer(spec, device="meta", dtype=torch.bfloat16)
    learned = sum(parameter.numel() for parameter in model.parameters())
    biases = sum(router.bias.numel() for router in model.routers())
    assert learned + biases == TOTALS[name] == parameters(spec).total


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_the_simulator_counts_what_is_there(spec: ModelSpec) -> None:
    model = Transformer(spec, device="meta")
    learned = sum(parameter.numel() for parameter in model.parameters())
    with_bias = spec.moe is not None and spec.moe.correction_bias
    biases = sum(router.bias.numel() for router in model.routers()) if with_bias else 0
    assert learned + biases == parameters(spec).total


@pytest.mark.parametrize("spec", VARIANTS.values(), ids=VARIANTS)
def test_released_names_cover_every_tensor_and_row(spec: ModelSpec) -> None:
    state = Transformer(spec, device="meta").state_dict()
    if spec.tied_embeddings:
        del state["head.weight"]
    found = list(tensors(spec))
    assert {whole.name: whole.shape for whole in found} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }
    for whole in found:
        rows = sum(torch.Size(part.shape).numel() for part in whole.parts)
        assert rows == torch.Size(whole.shape).numel(), whole.name


def test_kimi_k2_has_the_released_number_of_tensors() -> None:
    """139,644 in the headers of all shards: FP8 weights have scales beside them, and the rotary
    frequencies of 61 layers were saved, too."""
    parts = [part for whole in tensors(spec_of("kimi-k2")) for part in whole.parts]
    layers = [part for part in parts if ".layers." in part.theirs]
    scaled = [
        part
        for part in layers
        if len(part.shape) == 2 and not part.theirs.endswith("mlp.gate.weight")
    ]
    assert len(parts) + len(scaled) + 61 == 139_644


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_s_header_states_its_counts(name: str) -> None:
    text = (shipped_folder() / "catalog" / "models" / f"{name}.yaml").read_text()
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]{4,}\d", text.splitlines()[0])]
    count = parameters(spec_of(name))
    assert numbers == [count.total, count.activated_with_head]


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("kimi-k2-nano", 0.9e6, 1.1e6),
        ("kimi-k2-tiny", 9e6, 11e6),
        ("kimi-k2-small", 0.45e9, 0.55e9),
    ],
)
def test_a_preset_activates_what_its_name_promises(name: str, least: float, most: float) -> None:
    assert least <= parameters(spec_of(name)).activated_with_head <= most


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("kimi-k2", 2.827),
        ("moonlight-16b-a3b", 2.446),
        *((name, None) for name in PRESETS),
    ],
)
def test_the_routed_scale_makes_experts_add_up_to_the_size_of_one(
    name: str, scale: float | None
) -> None:
    """1 / E[norm of the weights] for sigmoids of normal logits: the released numbers, and ours."""
    moe = spec_of(name).moe
    assert moe is not None
    assert scale in (None, moe.routed_scale)
    logits = torch.randn(40_000, moe.experts, generator=torch.Generator().manual_seed(0))
    chosen = logits.topk(moe.top_k).values.sigmoid()
    weights = chosen / chosen.sum(-1, keepdim=True)
    assert moe.routed_scale == pytest.approx((1 / weights.norm(dim=-1)).mean().item(), abs=1.5e-3)
