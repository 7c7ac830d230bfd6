"""What the trainer can build of all that a model YAML may say."""

from __future__ import annotations

from twin.errors import Problem, ScenarioError
from twin.spec.model import GroupedAttention, ModelSpec

CODE = "TW270"


def refuse_unsupported(model: ModelSpec) -> None:
    """Raises ScenarioError that names everything in the model that no block here can run."""
    attention, moe = model.attention, model.moe
    grouped = attention if isinstance(attention, GroupedAttention) else None
    found = {
        "attention.bias": grouped is not None and (grouped.bias or grouped.qkv_bias),
        "attention.sinks": grouped is not None and grouped.sinks,
        "ffn.kind": model.ffn.kind != "swiglu",
        "ffn.bias": model.ffn.bias,
        "moe.bias": moe is not None and moe.bias,
        "moe.shared_gate": moe is not None and moe.shared_gate,
        "norm": model.norm != "rmsnorm",
        "learned_positions": model.learned_positions > 0,
        "embedding_norm": model.embedding_norm,
        "dropout": model.dropout,
        "mtp_layers": model.mtp_layers > 0,
    }
    problems = [
        Problem(
            CODE,
            f"model.{field}",
            f"the reference cannot run `{field}` of {model.name}",
            "it runs RMSNorm, rotary positions, SwiGLU, latent or grouped attention and experts; "
            f"`--set model.{field}=...` changes the field",
        )
        for field, wrong in found.items()
        if wrong
    ]
    if problems:
        raise ScenarioError(problems)
