"""Weights go to Hugging Face folders and back without a bit changed, and mean the same there."""

from __future__ import annotations

import json
import weakref
from pathlib import Path

import pytest
import torch

from reference.checkpoint.folder import Snapshot
from reference.checkpoint.folder import save as save_checkpoint
from reference.checkpoint.piece import piece_of
from reference.config import load_run
from reference.convert import shards
from reference.convert.folder import load, save
from reference.convert.hugging_face import from_hf, to_hf
from reference.model import Transformer
from reference.model.transformer import STANDARD_DEVIATION, initialize
from tests.reference.convert.folders import SMALL, put, released, same, saved, weights_of
from tests.reference.model.peers import GROUPED, LATENT, changed, peer, transformers
from twin.spec.model import ModelSpec

MODELS = {
    "K2 with YaRN": SMALL,
    "full rank, groups": changed(
        LATENT, attention__q_lora_rank=None, moe__groups=4, moe__top_groups=2, norm_eps=1e-3
    ),
    "Llama": changed(GROUPED),
    "Qwen3, tied": changed(GROUPED, attention__qk_norm=True, tied_embeddings=True),
}
every_model = pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)
TOKENS = torch.randint(0, 61, (2, 80), generator=torch.Generator().manual_seed(0))


@every_model
def test_what_transformers_saves_computes_the_same_here(spec: ModelSpec, tmp_path: Path) -> None:
    theirs = peer(spec)
    from_hf(saved(theirs, tmp_path / "hf"), tmp_path / "ours")
    own = load(tmp_path / "ours").eval()
    assert own.spec == spec.model_copy(update={"name": "hf"})
    with torch.no_grad():
        wanted = theirs(TOKENS, use_cache=False).logits
        assert (own(TOKENS) - wanted).abs().max() <= 1e-5


@every_model
def test_transformers_loads_what_is_written_and_computes_the_same(
    spec: ModelSpec, tmp_path: Path
) -> None:
    model = Transformer(spec).eval()
    initialize(model, seed=0)
    for parameter in model.parameters():
        if parameter.dim() > 1:  # to logits of about 1
            parameter.data *= parameter.shape[-1] ** -0.5 / STANDARD_DEVIATION
    save(model, tmp_path / "ours")
    to_hf(tmp_path / "ours", tmp_path / "hf")
    transformers().utils.logging.disable_progress_bar()
    kind = transformers().AutoModelForCausalLM
    theirs = kind.from_pretrained(tmp_path / "hf", attn_implementation="eager")
    with torch.no_grad():
        wanted = theirs.eval()(TOKENS, use_cache=False).logits
        assert (model(TOKENS) - wanted).abs().max() <= 1e-5


@every_model
def test_no_bit_changes_on_the_way_there_and_back(spec: ModelSpec, tmp_path: Path) -> None:
    weights = released(spec)
    put(tmp_path / "hf", spec, weights, initializer_range=0.006, eos_token_id=[3, 4])
    from_hf(tmp_path / "hf", tmp_path / "ours")
    done = to_hf(tmp_path / "ours", tmp_path / "again")
    assert same(weights_of(tmp_path / "again"), weights)
    assert done.tensors == len(weights)
    before, after = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("hf", "again")
    )
    assert after == {**before, "torch_dtype": "bfloat16"}


def test_several_files_and_their_index_hold_what_one_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = released(SMALL)
    put(tmp_path / "hf", SMALL, weights)
    monkeypatch.setattr(shards, "SHARD", 10_000)
    from_hf(tmp_path / "hf", tmp_path / "ours")
    to_hf(tmp_path / "ours", tmp_path / "again")
    files = sorted(path.name for path in (tmp_path / "again").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "again" / shards.INDEX).read_text())
    assert index["weight_map"].keys() == weights.keys()
    assert index["metadata"]["total_size"] == sum(t.numel() * t.itemsize for t in weights.values())
    assert same(weights_of(tmp_path / "again"), weights)


@pytest.mark.parametrize("way", [from_hf, to_hf])
def test_one_released_tensor_is_in_memory_at_a_time(
    way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "hf", SMALL, released(SMALL))
    if way is to_hf:
        from_hf(tmp_path / "hf", tmp_path / "source")
    source = tmp_path / ("source" if way is to_hf else "hf")
    alive: set[int] = set()
    counts: list[int] = []

    def watched(read):
        def called(*args):
            tensor = read(*args)
            key = len(counts)
            alive.add(key)
            weakref.finalize(tensor, alive.discard, key)
            counts.append(len(alive))
            return tensor

        return called

    for name in ("read", "rows"):
        monkeypatch.setattr(shards.Shards, name, watched(getattr(shards.Shards, name)))
    way(source, tmp_path / "made")
    assert len(counts) == len(released(SMALL))
    # The one before may not have been freed yet when the next is read.
    assert max(counts) <= 2


def test_a_router_s_bias_is_in_fp32_whatever_the_weights_are(tmp_path: Path) -> None:
    weights = {name: tensor.bfloat16() for name, tensor in released(SMALL).items()}
    put(tmp_path / "hf", SMALL, weights)
    from_hf(tmp_path / "hf", tmp_path / "ours", torch.bfloat16)
    kinds = {name: tensor.dtype for name, tensor in weights_of(tmp_path / "ours").items()}
    assert kinds.pop("layers.1.ffn.router.bias") == torch.float32
    assert set(kinds.values()) == {torch.bfloat16}


def test_weights_take_another_type_and_go_back(tmp_path: Path) -> None:
    put(tmp_path / "hf", SMALL, released(SMALL))
    from_hf(tmp_path / "hf", tmp_path / "ours", torch.float32)
    to_hf(tmp_path / "ours", tmp_path / "again", torch.bfloat16)
    found = weights_of(tmp_path / "ours")
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert same(weights_of(tmp_path / "again"), released(SMALL))


def test_a_trainer_s_checkpoint_becomes_a_folder_with_its_stage_s_positions(tmp_path: Path) -> None:
    run = load_run("nano", ["model.layers=2", "model.vocab=64", "train.steps=3", "stages=[]"])
    run = run.model_validate(
        run.model_dump(mode="json")
        | {
            "stages": [
                {"name": "long", "steps": 2, "sequence": 512, "micro_batch": 1, "lr": 1e-4}
                | {"yarn": 4.0}
            ]
        }
    )
    model = Transformer(run.model, dtype=torch.bfloat16)
    initialize(model, seed=0)
    config = run.model_dump(mode="json")
    for step in (3, 4):
        state = {f"model/{name}": piece_of(tensor) for name, tensor in model.state_dict().items()}
        save_checkpoint(tmp_path / "run" / "checkpoints", Snapshot(step, state, {}, config), 2)
    to_hf(tmp_path / "run", tmp_path / "newest")
    to_hf(tmp_path / "run" / "checkpoints" / "step-00000003", tmp_path / "first")
    said = [
        json.loads((tmp_path / name / "config.json").read_text()).get("rope_scaling")
        for name in ("first", "newest")
    ]
    assert said[0] is None
    assert said[1]["factor"] == 4
    from_hf(tmp_path / "newest", tmp_path / "ours")
    again = load(tmp_path / "ours")
    assert same(dict(again.state_dict()), dict(model.state_dict()))
