"""Folders as Hugging Face has them, made by `transformers` or by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from reference.convert.config import config_of, tensors
from tests.reference.model.peers import LATENT, changed
from twin.spec.model import ModelSpec

SMALL = changed(
    LATENT,
    layers=2,
    rope={
        "theta": 50_000,
        "yarn": {"factor": 32, "original_context": "64tok", "beta_fast": 1, "beta_slow": 1},
    },
)
"""One dense layer and one with experts."""


def released(spec: ModelSpec, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors under released names; bf16, biases fp32."""
    generator = torch.Generator().manual_seed(seed)
    return {
        part.theirs: torch.randn(part.shape, generator=generator).to(
            torch.float32 if "correction_bias" in part.theirs else torch.bfloat16
        )
        for whole in tensors(spec)
        for part in whole.parts
    }


def put(folder: Path, spec: ModelSpec, weights: dict[str, Tensor], **keys: Any) -> Path:
    """A folder with one file of weights, and a configuration with other keys; None takes one
    out."""
    folder.mkdir(parents=True)
    config = config_of(spec, {}) | keys
    config = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")
    return folder


def weights_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's files."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= load_file(path)
    return found


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """The same names, types and bits."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name])
        for name in left
    )


def saved(model: nn.Module, folder: Path) -> Path:
    """The folder that `transformers` writes."""
    model.save_pretrained(folder)  # pyright: ignore[reportCallIssue]
    return folder
