"""How Megatron-LM's arguments lay a run out, as the fields of the sections `parallel`, `memory` and
`train`. Defaults are those of the arguments (megatron/training/arguments.py at 000c4ac2)."""

from __future__ import annotations

from typing import Any, Final

from twin.interop.importing.megatron.launch_file import Arguments
from twin.interop.importing.megatron.model import split_of
from twin.loading.files import table
from twin.spec.rank_order import AXES

Fields = dict[str, Any]

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""`--data-parallel-sharding-strategy` of Megatron-FSDP as ZeRO's stages."""
OFFLOADED: dict[str, Any] = table(__name__, "OFFLOADED")
"""`--offload-modules` as `memory.offload`."""
OF_EXPERTS = ("expert_fc1", "moe_act")
"""Those of experts."""
RECOMPUTED: dict[str, Any] = table(__name__, "RECOMPUTED")
"""`--recompute-modules` that `memory.recompute` has, too."""
SCALING = {"blockwise": "block", "delayed": "tensor", "tensorwise": "current", "mxfp8": "mx"}
"""`--fp8-recipe` as `train.fp8_scaling`."""
PIPELINE_BEFORE_DATA = ("tensor", "context", "expert", "pipeline", "data")
"""The order of ranks under `--use-tp-pp-dp-mapping`."""


def parallel_fields(args: Arguments) -> Fields:
    """The fields of the section `parallel`."""
    tensor = args.count("tensor-model-parallel-size", 1)
    experts = args.count("num-experts", 0, least=0) > 0
    virtual, layers = split_of(args)
    found: Fields = {
        "pipeline": args.count("pipeline-model-parallel-size", 1),
        "virtual": virtual,
        "expert": args.count("expert-model-parallel-size", 1),
        "tensor": tensor,
        "expert_tensor": args.count("expert-tensor-parallel-size", tensor if experts else 1),
        **_context(args),
        "micro_batch": args.count("micro-batch-size"),
        "sequence_parallel": args.flag("sequence-parallel"),
        "schedule": _schedule(args, virtual),
        "overlap_grad_reduce": args.flag("overlap-grad-reduce"),
        "overlap_param_gather": args.flag("overlap-param-gather"),
        "bucket_size": args.count("ddp-bucket-size", 0, least=0) or None,
        "layers": layers,
        "order": PIPELINE_BEFORE_DATA if args.flag("use-tp-pp-dp-mapping") else AXES,
        **_sharding(args),
    }
    pieces = args.flag("tp-comm-overlap")
    if tensor > 1:
        found["overlap_tensor"] = "pieces" if pieces else "bulk"
    return found | (_expert_traffic(args) if experts else {})


def _schedule(args: Arguments, virtual: int) -> Fields:
    """1F1B, interleaved where stages have several chunks. `--overlap-moe-expert-parallel-comm`
    pairs forwards with backwards, one more forward ahead; so it does on a single stage."""
    pairs, late = args.flag("overlap-moe-expert-parallel-comm"), args.flag("delay-wgrad-compute")
    alone = args.count("pipeline-model-parallel-size", 1) == 1
    if virtual == 1 and not (alone and pairs):
        if pairs or late:
            args.remark(
                "`--overlap-moe-expert-parallel-comm` and `--delay-wgrad-compute` need two or more "
                "chunks per stage here, or one stage: left out."
            )
        return {"kind": "1f1b"}
    return {
        "kind": "interleaved_1f1b",
        "extra_warmup": int(pairs),
        "overlap_all_to_all": pairs,
        "defer_weight_grad": late,
    }


CONTEXT_EXCHANGES = ("p2p", "all_gather", "a2a", "a2a+p2p")
"""How context ranks exchange, by `--cp-comm-type`: the default first."""


def _context(args: Arguments) -> Fields:
    """Context ranks, and how they exchange; of two levels the first size is that of neighbours."""
    ranks = args.count("context-parallel-size", 1)
    kind = args.text("cp-comm-type", CONTEXT_EXCHANGES[0], CONTEXT_EXCHANGES)
    near = args.count("hierarchical-context-parallel-sizes", ranks)
    heads = {"a2a": ranks, "a2a+p2p": near}.get(kind, 1)
    ring = ranks > heads and kind.endswith("p2p")
    return {"context": ranks, "context_heads": heads, "context_ring": ring}


def _sharding(args: Arguments) -> Fields:
    copies = args.count("num-distributed-optimizer-instances", 1)
    sharded = _sharded(args)
    return sharded | {"shard_copies": copies if sharded["zero"] else 1}


def _sharded(args: Arguments) -> Fields:
    distributed = args.flag("use-distributed-optimizer")
    whole = args.flag("torch-fsdp2-no-reshard-after-forward")
    if args.flag("use-torch-fsdp2"):
        return {"zero": 3, "reshard_after_forward": not whole}
    strategy = args.text("data-parallel-sharding-strategy", "no_shard", tuple(SHARDING))
    if args.flag("use-megatron-fsdp") or args.flag("use-custom-fsdp"):
        return {"zero": SHARDING[strategy]}
    layerwise = args.text("optimizer", "adam") == "dist_muon"
    return {"zero": int(distributed or layerwise)}


def _expert_traffic(args: Arguments) -> Fields:
    kinds = ("allgather", "alltoall", "alltoall_seq", "flex")
    kind = args.text("moe-token-dispatcher-type", "allgather", kinds)
    backend = args.text("moe-flex-dispatcher-backend", "deepep")
    args.flag("moe-enable-deepep")
    spread = args.count("expert-model-parallel-size", 1) > 1
    if kind == "flex" and backend not in ("deepep", "hybridep"):
        args.remark(f"The dispatcher `{backend}` is counted as DeepEP: one copy per node.")
        backend = "deepep"
    named = {"flex": backend, "allgather": "allgather" if spread else "alltoall"}
    found: Fields = {"dispatcher": named.get(kind, "alltoall")}
    beside = args.flag("moe-shared-expert-overlap")
    if args.count("moe-shared-expert-intermediate-size", 0, least=0):
        found["overlap_shared_experts"] = beside
    return found


def memory_fields(args: Arguments) -> Fields:
    """The fields of the section `memory`."""
    on_host = args.flag("optimizer-cpu-offload")
    chunked = args.flag("chunked-optimizer-state-offload")
    streamed = args.flag("offload-optimizer-states") or chunked
    if args.number("optimizer-offload-fraction", 1.0) < 1:
        args.remark("`--optimizer-offload-fraction`: all optimizer states are on the host here.")
    offload = (*_activations(args), *(("optimizer",) if on_host or streamed else ()))
    return {
        "recompute": _recomputed(args),
        "offload": offload,
        "optimizer_update": "host" if on_host else "device",
        "fully_shard": args.flag("use-torch-fsdp2"),
    }


def _recomputed(args: Arguments) -> tuple[str, ...]:
    plain = args.flag("recompute-activations") or args.flag("checkpoint-activations")
    granularity = args.text("recompute-granularity", "", ("", "full", "selective"))
    method = args.text("recompute-method", "")
    each = args.count("recompute-num-layers", 1, least=0)
    named = args.values("recompute-modules") or ("core_attn",)
    if args.flag("moe-layer-recompute"):
        named = (*(named if granularity == "selective" else ()), "moe")
        granularity = granularity or "selective"
    if granularity == "full":
        if method == "block" or each > 1:
            shown = f"`--recompute-method {method or 'uniform'} --recompute-num-layers {each}`"
            args.remark(f"{shown}: every layer keeps its input, and no more, here.")
        return ("full",)
    if granularity != "selective" and not plain:
        return ()
    lost = [module for module in named if module not in RECOMPUTED]
    for module in lost:
        args.remark(f"Recomputing `{module}` whole has no name here: its activations are kept.")
    return tuple(RECOMPUTED[module] for module in named if module in RECOMPUTED)


def _activations(args: Arguments) -> tuple[str, ...]:
    fine, modules = args.flag("fine-grained-activation-offloading"), args.values("offload-modules")
    whole = args.count("cpu-offloading-num-layers", 0, least=0)
    if whole:
        args.remark("`--cpu-offloading-num-layers`: activations of all layers go to the host here.")
    for module in (module for module in modules if fine and module not in OFFLOADED):
        args.remark(f"Offloading `{module}` has no name here: what it keeps stays on the device.")
    present = OFFLOADED if args.count("num-experts", 0, least=0) else {*OFFLOADED} - {*OF_EXPERTS}
    if whole or (fine and {*present} <= {*modules}):
        return ("activations",)
    return tuple(OFFLOADED[module] for module in modules if fine and module in OFFLOADED)


_FORCED = "moe-router-force-load-balancing"
"""Random scores (`apply_random_logits`, megatron/core/transformer/moe/moe_utils.py): loads are
those of chance."""


def train_fields(args: Arguments) -> Fields:
    """The fields of the section `train`."""
    sequence, batch = args.count("seq-length"), args.count("global-batch-size")
    if args.flag("cross-entropy-loss-fusion"):
        args.text("cross-entropy-fusion-impl", "native")
    interval = args.count("manual-gc-interval", 0, least=0)
    return {
        "tokens": f"{_samples(args, batch) * sequence}tok",
        "sequence": f"{sequence}tok",
        "global_batch": f"{batch}seq",
        "optimizer": _optimizer(args),
        **({"routing": {"kind": "random"}} if args.flag(_FORCED) else {}),
        **_numbers(args),
        **_places(args),
        "attention_kernel": _attention(args),
        "gc_interval": interval if args.flag("manual-gc") else None,
    }


def _places(args: Arguments) -> Fields:
    """Tokens that are dropped, and padded to as many."""
    factor = args.number("moe-expert-capacity-factor", 0.0)
    if args.flag("moe-pad-expert-input-to-capacity") and factor > 0:
        return {"expert_capacity": factor}
    if factor > 0:
        args.remark("`--moe-expert-capacity-factor` without padding: no token is dropped here.")
    return {}


def _samples(args: Arguments, batch: int) -> int:
    """Sequences of the whole run."""
    samples = args.count("train-samples", 0, least=0)
    iterations = args.count("train-iters", 0, least=0)
    if not samples and not iterations:
        message = "there is neither `--train-samples` nor `--train-iters`"
        args.refuse("train-samples", message, "--with '--train-samples NUMBER'", "TW011")
    return samples or max(iterations, 1) * batch


def _numbers(args: Arguments) -> Fields:
    """Numbers of products and gradients."""
    bf16, fp16 = args.flag("bf16"), args.flag("fp16")
    exact = args.flag("accumulate-allreduce-grads-in-fp32")
    short = args.flag("grad-reduce-in-bf16") or args.text("main-grads-dtype", "fp32") == "bf16"
    if fp16:
        args.remark("fp16 is counted as bf16: as many bytes, and as fast.")
    elif not bf16:
        args.remark("Neither `--bf16` nor `--fp16`: products are counted in bf16 all the same.")
    found: Fields = {"gradients": "bf16" if short or (fp16 and not exact) else "fp32"}
    if args.text("fp4-format", "", ("", "e2m1")):
        args.taken |= {"fp8-recipe", "fp8-param-gather"}
        return found | {"recipe": _nvfp4(args)}
    args.taken |= {"fp4-recipe", "fp4-param-gather"}
    if not args.text("fp8-format", "", ("", "e4m3", "hybrid")):
        args.taken |= {"fp8-recipe", "fp8-param-gather", *_ENDS}
        return found
    recipe = args.text("fp8-recipe", "delayed", (*SCALING, "custom"))
    if recipe == "custom":
        args.remark("`--fp8-recipe custom` is counted as blockwise scaling.")
    gathered = {"fp8_param_gather": args.flag("fp8-param-gather")}
    numbers: Fields = {"precision": "fp8", "fp8_scaling": SCALING.get(recipe, "block")} | gathered
    if ends := _ends(args):
        return found | {"recipe": {"name": recipe} | numbers | ends}
    return found | numbers


def _nvfp4(args: Arguments) -> Fields:
    """Of products in FP4, of which Megatron-LM has one recipe; a factory of others is a function of
    whoever calls it."""
    if args.text("fp4-recipe", "nvfp4", ("nvfp4", "custom")) == "custom":
        args.remark("`--fp4-recipe custom` is counted as nvfp4.")
    gathered = {"fp4_param_gather": args.flag("fp4-param-gather")}
    return {"name": "nvfp4", "precision": "nvfp4"} | gathered | _ends(args)


_ENDS: Final = {
    "first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"
}  # fmt: skip


def _ends(args: Arguments) -> Fields:
    """First and last layers in bf16."""
    args.taken |= _ENDS
    if not args.flag("first-last-layers-bf16"):
        return {}
    return {
        "bf16_first": args.count("num-layers-at-start-in-bf16", 1, least=0),
        "bf16_last": args.count("num-layers-at-end-in-bf16", 1, least=0),
    }


def _attention(args: Arguments) -> str:
    backends = ("auto", "flash", "fused", "unfused", "local")
    backend = args.text("attention-backend", "auto", backends)
    args.flag("use-flash-attn")
    return "unfused" if backend in ("unfused", "local") else "flash"


def _optimizer(args: Arguments) -> Fields:
    kind = args.text("optimizer", "adam")
    clip = args.flag("qk-clip")
    args.taken |= {"exp-avg-dtype", "exp-avg-sq-dtype"}
    if kind in ("muon", "dist_muon"):
        sharded = kind == "dist_muon" or args.flag("use-distributed-optimizer")
        owners = "partitioned" if sharded else "replicated"
        return {"kind": "muonclip" if clip else "muon", "newton_schulz": owners}
    if clip:
        args.remark("QK-clip goes with Muon here: left out.")
    if kind != "adam":
        args.refuse("optimizer", f"`--optimizer {kind}` cannot be expressed", "adam or muon")
    return {"kind": "adamw"} | _moments(args)


def _moments(args: Arguments) -> Fields:
    """Numbers of both moments; fp16 is counted as bf16."""
    both = [args.text(name, "fp32") for name in ("exp-avg-dtype", "exp-avg-sq-dtype")]
    if "fp16" in both:
        args.remark("Moments in fp16 are counted as bf16.")
    first, second = ("bf16" if one not in ("fp32", "fp8") else one for one in both)
    return {"moments": first} | ({"variance": second} if second != first else {})
