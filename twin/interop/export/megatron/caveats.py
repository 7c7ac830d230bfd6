"""Of what Megatron-LM's arguments do say: what its code makes of it that the twin does not, and
what its code refuses.

Sources: `validate_args` of megatron/training/arguments.py at 000c4ac2, `__post_init__` and the
words on fields of megatron/core/transformer/transformer_config.py at 002526d8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twin.interop.importing.megatron import Argument
from twin.planning.types import Plan
from twin.schedules.interleaved import Interleaved


def caveats(plan: Plan, arguments: Sequence[Argument]) -> tuple[str, ...]:
    """What a reader of the arguments must know, as sentences."""
    given = {argument.name: argument.values for argument in arguments}
    return (*_differences(given), *_refusals(plan, given))


def _differences(given: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Arguments that mean a little less or more than the field."""
    modules = given.get("recompute-modules", ())
    if "layernorm" in modules:
        yield "layernorm recomputes the two norms of a layer; norms of queries and keys are kept."
    if "moe_act" in modules:
        yield "moe_act recomputes SwiGLU of routed experts; that of dense and shared ones is kept."
    if "offload-modules" in given:
        yield (
            "--offload-modules sends inputs of modules one by one, not all that a chunk keeps; "
            "with Transformer Engine 2.10 it needs NVTE_CPU_OFFLOAD_V1=1."
        )
    if "offload-optimizer-states" in given:
        yield (
            "--offload-optimizer-states is new in 2026, and by mid-2026 another name for "
            "--chunked-optimizer-state-offload."
        )
    if "overlap-grad-reduce" in given:
        yield (
            "--overlap-grad-reduce, which --overlap-param-gather needs, reduces gradients under "
            "the backward passes; the twin reduces them behind these."
        )
    if given.get("optimizer") == ("muon",):
        yield (
            "--optimizer muon with --use-distributed-optimizer is --optimizer dist_muon, and no "
            "--use-distributed-optimizer, in versions before 2026."
        )
    if "qk-clip" in given:
        yield "--qk-clip reduces its maxima layer by layer; the twin once for all layers of a rank."


def _refusals(plan: Plan, given: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """Layouts that the twin plays and Megatron-LM does not run."""
    scenario = plan.scenario
    parallel, model = scenario.parallel, scenario.model
    refused = {
        "experts with tensor ranks and no --sequence-parallel": model.moe is not None
        and parallel.tensor > 1
        and not parallel.sequence_parallel,
        "--moe-router-topk 1 with a softmax behind the choice": model.moe is not None
        and model.moe.top_k == 1
        and model.moe.scores == "softmax"
        and model.moe.normalize_weights,
        "--moe-router-enable-expert-bias with softmax": model.moe is not None
        and model.moe.correction_bias
        and model.moe.scores == "softmax",
        "a sequence that 2 x context ranks do not divide": parallel.context > 1
        and scenario.train.sequence % (2 * parallel.context) > 0,
        "--use-torch-fsdp2 with pipeline stages, expert ranks or tied embeddings": (
            "use-torch-fsdp2" in given
            and (parallel.pipeline > 1 or parallel.expert > 1 or model.tied_embeddings)
        ),
        "Muon with FSDP": given.get("optimizer") == ("muon",)
        and bool({"use-megatron-fsdp", "use-torch-fsdp2"} & given.keys()),
        "chunks on one pipeline stage": parallel.virtual > 1 and parallel.pipeline == 1,
        "micro-batches that the stages do not divide, interleaved": isinstance(
            parallel.schedule, Interleaved
        )
        and plan.microbatches % parallel.pipeline > 0,
        "--overlap-moe-expert-parallel-comm with several prediction modules": (
            "overlap-moe-expert-parallel-comm" in given and model.mtp_layers > 1
        ),
        "experts that are not gated, or an activation without its biases": _plain_blocks(plan),
    }
    yield from (f"Megatron-LM refuses {what}." for what, found in refused.items() if found)


def _plain_blocks(plan: Plan) -> bool:
    """Whether GELU comes without biases, which `bias_activation_fusion` refuses, or dense blocks
    differ from experts, which are SwiGLU here."""
    model = plan.scenario.model
    bare = model.ffn.kind == "gelu" and not model.ffn.bias
    return bare or (model.moe is not None and model.ffn.kind != "swiglu")
