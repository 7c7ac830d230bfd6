"""Engines of models small enough to run in every test: bytes as tokens, random weights."""

from __future__ import annotations

from functools import cache
from typing import Any

from reference.inference.engine import Engine
from reference.inference.request import EngineRequest, GeneratedToken, Sampling, Update
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.text.tokenizer import ByteTokenizer, Vocabulary
from twin.spec.model import ModelSpec

WORDS = 272
"""256 bytes, the end of a document, 10 markers, and 5 ids without meaning."""
LATENT: dict[str, Any] = {
    "name": "latent",
    "layers": 2,
    "hidden": 32,
    "vocab": WORDS,
    "attention": {
        "kind": "mla",
        "heads": 2,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
    },
    "ffn": {"kind": "swiglu", "width": 48},
    "moe": {
        "experts": 4,
        "top_k": 2,
        "width": 16,
        "shared_experts": 1,
        "first_dense_layers": 1,
        "correction_bias": True,
        "scores": "sigmoid",
    },
}


@cache
def model(seed: int = 0) -> Transformer:
    """A model whose logits differ by several units."""
    made = Transformer(ModelSpec.model_validate(LATENT)).eval()
    initialize(made, seed)
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data *= parameter.shape[-1] ** -0.5 / 0.02
    return made


VOCABULARY = Vocabulary(ByteTokenizer(), WORDS)


def engine(seed: int = 0, **fields: Any) -> Engine:
    """An engine of its own on the shared model."""
    return Engine(model(seed), VOCABULARY, EngineSpec.model_validate(fields))


def asked(text: str, tokens: int = 12, **fields: Any) -> EngineRequest:
    """A greedy request, unless the fields say more."""
    fields = {"sampling": Sampling(temperature=0.0), **fields}
    return EngineRequest(tuple(text.encode()), tokens, **fields)


def run(served: Engine) -> list[Update]:
    """Every update until nobody waits."""
    found: list[Update] = []
    for _ in range(5000):
        if served.idle:
            return found
        found += served.step()
    raise AssertionError("the engine does not come to an end")


def told(updates: list[Update], number: int, choice: int = 0) -> list[GeneratedToken]:
    """The tokens of one choice."""
    own = [one for one in updates if (one.request, one.choice) == (number, choice)]
    return [one.told for one in own if one.told is not None]


def ids(updates: list[Update], number: int, choice: int = 0) -> list[int]:
    """Their ids."""
    return [one.token for one in told(updates, number, choice)]


def text(updates: list[Update], number: int, choice: int = 0) -> str:
    """What a choice says."""
    return "".join(one.text for one in updates if (one.request, one.choice) == (number, choice))
