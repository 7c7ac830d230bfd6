"""Layers of several kinds in Megatron-LM's arguments: hybrids, by a letter per layer, and what
mixes tokens in layers without attention.

`--hybrid-layer-pattern "M-M*|M-ME/*E"`: M is Mamba-2, G a gated delta net, * attention, - a dense
block, E experts; `|` ends a pipeline stage, and what follows `/` predicts further tokens
(megatron/core/models/hybrid/hybrid_layer_allocation.py at d98e8a64). The older
`--hybrid-override-pattern` says the same.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from twin.errors import Problem, UsageError
from twin.interop.importing.megatron.launch_file import Argument, Arguments
from twin.spec.model import ModelSpec

Fields = dict[str, Any]

BLOCKS: Final = MappingProxyType(
    {"M": "mamba2", "G": "gated_delta", "*": "attention", "-": "dense", "E": "moe"}
)
"""What letters are in a pattern of a model."""
_NAMES: Final = ("hybrid-layer-pattern", "hybrid-override-pattern")
_BEFORE: Final = ("hybrid-attention-ratio", "hybrid-mlp-ratio")


def hybrid_fields(args: Arguments) -> Fields:
    """Layers, pattern and mixer of a hybrid; empty where layers are attention and what follows."""
    args.taken.add("is-hybrid-model")
    for name in _BEFORE:
        if args.number(name, 0.0):
            args.refuse(name, f"`--{name}` spreads layers by a rule of its own", "give a pattern")
    name = next((one for one in _NAMES if one in args), None)
    if name is None:
        return {}
    written = args.text(name, "")
    stages, _, further = written.partition("/")
    letters = stages.replace("|", "")
    unknown = sorted(set(letters) - BLOCKS.keys())
    if unknown or not letters:
        message = f"`--{name}` has letters that no block here has: {' '.join(unknown) or 'none'}"
        args.refuse(name, message, f"the letters are {' '.join(BLOCKS)}")
        return {}
    if "|" in stages:
        args.remark("Stages of the pattern: layers are split by `--pipeline-model-parallel-size`.")
    mixers = [letter for letter in "MG" if letter in letters]
    if len(mixers) > 1:
        args.refuse(name, "Mamba and delta nets in one model", "one mixer beside attention")
    # The pattern wins over the number, as in `validate_args`.
    args.given["num-layers"] = Argument("num-layers", (str(len(letters)),))
    blocks = tuple(BLOCKS[letter] for letter in letters)
    found: Fields = {"pattern": blocks, **_further(args, further)}
    return found | ({"mixer": _mixer(args, mixers[0])} if mixers else {})


def _further(args: Arguments, written: str) -> Fields:
    """What predicts further tokens: a pattern for each, all alike, or one and how many."""
    alone = args.text("mtp-hybrid-override-pattern", "")
    each = written.partition("/")[0] or alone
    count = args.count("mtp-num-layers", 0, least=0)
    count = written.count("/") + 1 if written else count
    if not (each and count):
        return {"mtp_layers": 0}
    unknown = sorted(set(each) - BLOCKS.keys())
    if unknown:
        args.remark(f"What predicts further tokens is left out: `{each}`.")
        return {"mtp_layers": 0}
    return {
        "mtp_layers": count,
        "mtp_pattern": tuple(BLOCKS[letter] for letter in each),
        "mtp_shared": args.flag("mtp-use-repeated-layer"),
    }


def hybrid_options(model: ModelSpec) -> Fields:
    """The options of a model whose layers follow a pattern. Raises `UsageError` where a layer is
    none of Megatron-LM's."""
    letters = {block: letter for letter, block in BLOCKS.items()}
    unknown = sorted(set(model.pattern) - letters.keys())
    if unknown:
        message = f"{model.name} has layers that no arguments of Megatron-LM say: {unknown[0]}"
        raise UsageError([Problem("TW041", "", message, "write a scenario that names the model")])
    times = -(-model.layers // len(model.pattern))
    pattern = "".join(letters[one] for one in model.pattern * times)[: model.layers]
    found: Fields = {"hybrid-layer-pattern": pattern, "is-hybrid-model": True}
    found["moe-layer-freq"] = None
    if model.mtp_layers:
        found["mtp-hybrid-override-pattern"] = "".join(letters[one] for one in model.mtp_pattern)
        found["mtp-use-repeated-layer"] = model.mtp_shared
    if model.mixer is None:
        return found
    known = _OPTIONS[model.mixer.kind]
    return found | {option: getattr(model.mixer, field) for option, field in known.items()}


_OPTIONS: Final = MappingProxyType(
    {
        "mamba2": {
            "mamba-num-heads": "num_heads",
            "mamba-head-dim": "head_dim",
            "mamba-num-groups": "groups",
            "mamba-state-dim": "state_dim",
        },
        "gated_delta": {
            "linear-num-key-heads": "key_heads",
            "linear-num-value-heads": "value_heads",
            "linear-key-head-dim": "key_dim",
            "linear-value-head-dim": "value_dim",
            "linear-conv-kernel-dim": "conv",
        },
    }
)
"""Options and fields of what mixes tokens."""


def _mixer(args: Arguments, letter: str) -> Fields:
    kind = BLOCKS[letter]
    heads = max(2 * args.count("hidden-size") // args.count("mamba-head-dim", 64), 1)
    usual = {**_USUAL, "mamba-num-heads": heads}
    found = {field: args.count(name, usual[name]) for name, field in _OPTIONS[kind].items()}
    return {"kind": kind, **found}


_USUAL: Final = MappingProxyType(
    {
        "mamba-head-dim": 64,
        "mamba-num-groups": 8,
        "mamba-state-dim": 128,
        "linear-num-key-heads": 16,
        "linear-num-value-heads": 32,
        "linear-key-head-dim": 128,
        "linear-value-head-dim": 128,
        "linear-conv-kernel-dim": 4,
    }
)
"""What Megatron-Core takes where nothing is said (transformer_config.py at d98e8a64)."""
