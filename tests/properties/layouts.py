"""Random small layouts: a shipped scenario with some fields replaced, as a planner would replace
them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from typing import Any, Literal

from hypothesis import strategies as st

from twin.loading import load
from twin.scenario import Scenario

Base = Literal["kimi-k2-256xh800", "gpt-175b-64xa100-full"]

EXPERTS = 16
SMALL_MODELS: Mapping[Base, Mapping[str, Any]] = {
    "kimi-k2-256xh800": {
        "model.vocab": 1024,
        "model.moe.experts": EXPERTS,
        "model.moe.top_k": 4,
        "model.moe.width": 256,
    },
    "gpt-175b-64xa100-full": {
        "model.vocab": 1024,
        "model.attention.heads": 8,
        "model.attention.kv_heads": 8,
        "model.attention.head_dim": 64,
        "model.ffn.width": 2048,
    },
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A shipped scenario and the fields that differ from it, by dotted path."""

    base: Base
    fields: Mapping[str, Any]

    def but(self, **changed: Any) -> Layout:
        """This layout with other fields of `parallel`; `batch` is the global batch in sequences."""
        if "batch" in changed:
            changed["train.global_batch"] = f"{changed.pop('batch')}seq"
        named = {k if "." in k else f"parallel.{k}": value for k, value in changed.items()}
        return replace(self, fields={**self.fields, **named})

    def scenario(self) -> Scenario:
        """The scenario, validated without a file: quick, and without positions."""
        document: dict[str, Any] = json.loads(_document(self.base))
        for path, value in self.fields.items():
            *above, key = path.split(".")
            section = document
            for step in above:
                section = section[step]
            section[key] = value
        return Scenario.model_validate(document)

    def loaded(self) -> Scenario:
        """The scenario as a planner would load it, each field an override."""
        return load(self.base, [f"{path}={json.dumps(v)}" for path, v in self.fields.items()])


@cache
def _document(base: Base) -> str:
    return json.dumps(load(base).model_dump(mode="json", by_alias=True))


def divisors(number: int) -> st.SearchStrategy[int]:
    """Degrees that divide a number."""
    return st.sampled_from([d for d in range(1, number + 1) if number % d == 0])


@st.composite
def layouts(draw: st.DrawFn, most_stages: int = 16, rounds: tuple[int, int] = (1, 4)) -> Layout:
    """A layout of at most 16 ranks that can run, with so many rounds of as many micro-batches as
    there are stages; without interleaving also a few less."""
    base: Base = draw(st.sampled_from(sorted(SMALL_MODELS)))
    nodes, per_node = draw(st.sampled_from([(1, 1), (1, 8), (2, 2), (2, 4), (2, 8), (4, 4)]))
    ranks = nodes * per_node
    pipeline = draw(divisors(ranks).filter(lambda stages: stages <= most_stages))
    tensor = draw(divisors(gcd(ranks // pipeline, 8)))
    context = draw(divisors(gcd(ranks // pipeline // tensor, 4)))
    data = ranks // pipeline // tensor // context
    stage_ranks = tensor * context * data
    expert = expert_tensor = 1
    if base.startswith("kimi"):
        expert_tensor = draw(divisors(gcd(stage_ranks, 4)))
        expert = draw(divisors(gcd(stage_ranks // expert_tensor, EXPERTS)))
    virtual = draw(st.integers(1, 3))
    chunks = pipeline * virtual
    layers = draw(st.integers(max(pipeline, chunks - pipeline + 1), chunks + 2))
    micro_batch = draw(st.integers(1, 2))
    microbatches = pipeline * draw(st.integers(*rounds))
    if virtual == 1:
        microbatches -= draw(st.integers(0, pipeline - 1))
    fields: dict[str, Any] = {
        **SMALL_MODELS[base],
        **draw(choices()),
        "cluster.nodes": nodes,
        "cluster.node.gpus": per_node,
        "model.layers": layers,
        "parallel.pipeline": pipeline,
        "parallel.virtual": virtual,
        "parallel.tensor": tensor,
        "parallel.context": context,
        "parallel.expert": expert,
        "parallel.expert_tensor": expert_tensor,
        "parallel.micro_batch": micro_batch,
        "parallel.schedule": draw(_schedules(virtual)),
        "parallel.layers": draw(st.none() | _splits(layers, chunks)),
        "train.global_batch": f"{data * microbatches * micro_batch}seq",
    }
    if expert_tensor > 1 and tensor > 1:
        fields["parallel.sequence_parallel"] = True
    overlaps = ["none", "bulk", *["pieces"] * fields.get("parallel.sequence_parallel", False)]
    fields["parallel.overlap_tensor"] = draw(st.sampled_from(overlaps))
    if base.startswith("kimi"):
        fields["model.moe.first_dense_layers"] = draw(st.integers(0, layers))
        fields["model.moe.shared_experts"] = draw(st.integers(0, 2))
    return Layout(base, fields)


@st.composite
def spoiled(draw: st.DrawFn) -> Layout:
    """A layout with one to three degrees that it need not divide by."""
    layout = draw(layouts())
    odd = draw(
        st.dictionaries(
            st.sampled_from(
                [
                    "pipeline",
                    "tensor",
                    "context",
                    "expert",
                    "expert_tensor",
                    "virtual",
                    "micro_batch",
                    "batch",
                ]
            ),
            st.integers(1, 40),
            min_size=1,
            max_size=3,
        )
    )
    return layout.but(**odd)


def choices() -> st.SearchStrategy[dict[str, Any]]:
    """Fields that no layout depends on."""
    return st.fixed_dictionaries(
        {
            "train.sequence": st.sampled_from(["64tok", "512tok", "2048tok"]),
            "train.attention_kernel": st.sampled_from(["flash", "unfused"]),
            "train.optimizer": st.sampled_from(
                ["adamw", "muon", {"kind": "muonclip", "newton_schulz": "partitioned"}]
            ),
            "model.tied_embeddings": st.booleans(),
            "memory.recompute": st.sampled_from([[], ["full"], ["attention_core"]]),
            "parallel.zero": st.sampled_from([0, 1, 2, 3]),
            "parallel.sequence_parallel": st.booleans(),
            "model.hidden": st.sampled_from([512, 8192]),
            "cluster.node.nic.bandwidth": st.sampled_from(["1Gbps", "200Gbps", "10Tbps"]),
        }
    )


def _schedules(virtual: int) -> st.SearchStrategy[str]:
    several = ["interleaved_1f1b"]
    return st.sampled_from(several if virtual > 1 else ["1f1b", "gpipe", "zb_h2"])


def _splits(layers: int, chunks: int) -> st.SearchStrategy[list[int]]:
    """Layers per chunk, zeros among them."""
    cuts = st.lists(st.integers(0, layers), min_size=chunks - 1, max_size=chunks - 1)
    return cuts.map(
        lambda at: [b - a for a, b in zip([0, *sorted(at)], [*sorted(at), layers], strict=True)]
    )
