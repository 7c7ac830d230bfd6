"""YAML of Megatron-Bridge (a whole configuration, or what goes over a recipe's) and of NeMo, as
arguments of Megatron-LM. What no argument means is told like an argument that no field takes.

A recipe itself is Python, and is not run: what it sets beside such a file is unknown, and its model
is asked for (`--architecture`) where the file has no layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.dialect import argument, launch_of
from twin.interop.importing.keys import Keys, Known, known_of
from twin.interop.importing.launch import Launch, Source
from twin.interop.importing.megatron.launch_file import Argument, arguments_of
from twin.interop.importing.named_models import model_called
from twin.interop.importing.python_recipe import (
    RECIPE,
    Call,
    Made,
    flat_of,
    recipe_of,
)
from twin.interop.tables import ask, finished, flat, overrides, words_of
from twin.loading.files import read_data
from twin.loading.tree import Branch, Child, hint, plain
from twin.loading.yaml_text import read_yaml, split_lines

_FILE: Final = Path(__file__).with_name("bridge.yaml")
_SHORT: Final = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}
_PRECISIONS: Final = ("mixed_precision", "trainer.precision")
_LETTERS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_MODEL_NAMES: Final = ("model.hf_model_id", "model.hf_path", "hf_path", "model.name")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Their keys and Megatron-LM's arguments."""

    sections: tuple[str, ...]
    arguments: Mapping[str, tuple[str, ...]]
    inverted: Mapping[str, tuple[str, ...]]
    precisions: Mapping[str, Mapping[str, Any]]
    known: Known

    @property
    def listed(self) -> frozenset[str]:
        """Keys that are named here."""
        both = (*self.arguments.values(), *self.inverted.values())
        return frozenset(key for keys in both for key in keys)

    def argument_of(self, key: str) -> str | None:
        """The argument of a key; None where none has it."""
        named = next((one for one, keys in self.arguments.items() if key in keys), None)
        section, _, name = key.partition(".")
        same = section in self.sections and "." not in name and name
        return named or (name.replace("_", "-") if same else None)

    def inverse_of(self, key: str) -> str | None:
        """The switch that is on where the key is false."""
        return next((one for one, keys in self.inverted.items() if key in keys), None)


@cache
def dialect() -> Dialect:
    """That of `bridge.yaml`."""
    data = read_data(_FILE)

    def lists(name: str) -> dict[str, tuple[str, ...]]:
        return {one: tuple(keys) for one, keys in data[name].items()}

    presets = {str(name): held for name, held in data["precisions"].items()}
    sections = tuple(data["sections"])
    return Dialect(sections, lists("arguments"), lists("inverted"), presets, known_of(_FILE))


def read(source: Source) -> Launch:
    """The launch that a YAML, or a recipe in Python, describes. Raises `UsageError` with everything
    that is wrong."""
    if source.language != "python":
        return launch_of_keys(flat(yaml_tree(source)), source)
    made, unknown = recipe_of(source, CALLS, "_config")
    launch = launch_of_keys(flat_of(made, source.file), source, whole=True)
    name = source.defined.get(RECIPE, source.name)
    return replace(launch, name=name, remarks=(*launch.remarks, *unknown))


def _on_a_gpu(args: Sequence[Any], _: Mapping[str, Any]) -> None:
    """What `apply_flex_dispatcher_backend` sets where the GPU has that dispatcher
    (training/flex_dispatcher_backend.py)."""
    model, backend = args
    if isinstance(model, Made) and backend in ("deepep", "hybridep"):
        model.fields["moe_token_dispatcher_type"] = "flex"
        model.fields["moe_flex_dispatcher_backend"] = backend
        model.fields["moe_shared_expert_overlap"] = False


_HYBRID: Final = {
    "share_embeddings_and_output_weights": False,
    "position_embedding_type": "none",
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "layernorm_epsilon": 1e-5,
}
"""Where `HybridModelProvider` differs from Megatron-LM's arguments
(models/hybrid/hybrid_provider.py)."""
CALLS: Final[Mapping[str, Call]] = {
    "HybridModelProvider": lambda _, said: Made("HybridModelProvider", {**_HYBRID, **said}),
    "from_hf_pretrained": lambda args, _: Made("model", {"hf_model_id": args[0]}),
    "apply_flex_dispatcher_backend": _on_a_gpu,
}
"""Calls of recipes whose worth is known."""
_GRAPHED: Final = ("model.cuda_graph_impl", "model.cuda_graph_scope", "model.cuda_graph_modules")
_MODULES: Final = "model.recompute_modules"
_WHOLE: Final = "full_iteration"
_GRAPHS: Final = ("local", "transformer_engine", _WHOLE)
_PARTS: Final = "CUDA graphs replay attention, router and what precedes the dispatch here."
_WHOLE_STEP: Final = "A CUDA graph replays all passes of a step here."
_TUNED: Final = "megatron-core-tuned"
"""Software of the catalog whose attention and router are replayed from CUDA graphs."""
_REPLAYED: Final = "megatron-core-replayed"
"""Software of the catalog whose passes of a step are one CUDA graph."""
_BUCKET: Final = 128 * 1024 * 1024
"""Parameters of a bucket where a configuration has `comm_overlap` (training/comm_overlap.py,
`_get_optimizer_overlap_cfgs`)."""


def launch_of_keys(
    given: Iterable[tuple[str, Child]], source: Source, *, whole: bool = False
) -> Launch:
    """The launch of keys by dotted path, with the further ones of `source`; words of these that
    begin with hyphens are Megatron-LM's arguments. `whole`: nothing is left to a recipe."""
    found = {key: child for key, child in given if not key.rpartition(".")[2].startswith("_")}
    more = [one for one in source.more if not one.startswith("--")]
    found |= overrides(more)
    keys = Keys(Branch(found, Origin(source.file, 1, 1, "", 1)), dialect().known, strict=False)
    model = source.model or _named(keys)
    sized = "model.num_layers" in found
    whole = whole or sized
    if model is None and not sized:
        message = "the file does not say the model, which its recipe does"
        ask(keys, "model", message, "--architecture NAME or its config.json")
    said = [*(() if whole else _USUAL), *_arguments(keys)]
    words = words_of(one for one in source.more if one.startswith("--"))
    said += arguments_of((word, None) for word in words)[0]
    said += _vocabulary(keys, said) if model is None else ()
    tally = keys.finish()
    finished(keys)
    if not whole:
        keys.warnings.append(
            "What the recipe sets in Python, and this file does not, is as in most recipes: bf16, "
            "states sharded over data ranks, gradients and weights sent beside passes."
        )
    launch = launch_of(said, source, model, keys.warnings)
    launch = replace(launch, tally=launch.tally.besides(tally))
    if plain_of(keys, "model.cuda_graph_impl") not in _GRAPHS:
        return launch
    whole = _WHOLE in _names(keys, _GRAPHED)
    told = _WHOLE_STEP if whole else _PARTS
    software = _REPLAYED if whole else _TUNED
    return replace(launch, software=software, remarks=(*launch.remarks, told))


def _vocabulary(keys: Keys, said: Sequence[Argument]) -> Iterator[Argument]:
    """That of the model whose tokenizer the keys name, where nothing says its size."""
    named = plain_of(keys, "tokenizer.tokenizer_model")
    told = {"vocab-size", "padded-vocab-size"} & {one.name for one in said}
    known = model_called(str(named)) if named and not told else None
    if known is not None:
        yield Argument("padded-vocab-size", (str(known.vocab),))


def _names(keys: Keys, wanted: Iterable[str]) -> Iterator[str]:
    """Words of these keys, each a word or a list of them."""
    for key in wanted:
        value = plain_of(keys, key)
        yield from map(str, cast("list[Any]", value) if isinstance(value, list) else [value])


_USUAL: Final = tuple(
    map(
        Argument,
        ("bf16", "use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather"),
    )
)
"""Of most recipes."""


def yaml_tree(source: Source) -> Branch:
    """The mapping of a YAML. Raises `UsageError` where it holds none."""
    lines = split_lines(source.text)

    def locate(line: int, column: int, width: int) -> Origin:
        return Origin(source.file, line + 1, column + 1, lines[line : line + 1][0], width)

    tree, problems = read_yaml(source.text, locate)
    if problems:
        raise UsageError(problems)
    if not isinstance(tree, Branch):
        message = f"`{source.file}` holds no sections"
        raise UsageError([Problem("TW041", "", message, "give a mapping")])
    return tree


def _named(keys: Keys) -> Any:
    """The catalog's model of a name in the file."""
    names = (keys.get(key) for key in _MODEL_NAMES)
    return next((one for name in names if name and (one := model_called(str(name)))), None)


def _arguments(keys: Keys) -> Iterator[Argument]:
    """What the keys come to, the precision first, which others refine."""
    yield from _precision(keys)
    for key, child in keys.tree.children.items():
        value = plain(child.node)
        name = dialect().argument_of(key)
        known = key in dialect().listed
        if key in (*_PRECISIONS, *_MODEL_NAMES, *_GRAPHED):
            keys.taken.add(key)
        elif known or (name and not keys.known.is_harmless(key)):
            keys.taken.add(key)
            if said := _said(keys, key, name, value):
                yield replace(said, origin=child.key)
    yield from _implied(keys)


def _said(keys: Keys, key: str, name: str | None, value: Any) -> Argument | None:
    """The argument that one key comes to; None where it is off, or another says it."""
    given = keys.tree.children
    inverse = dialect().inverse_of(key)
    if inverse:
        precise = "mixed_precision" in {one.partition(".")[0] for one in given}
        superseded = key.startswith("ddp.grad_reduce") and precise
        return None if superseded else argument(inverse, value is False)
    if name == "vocab-size" and not plain_of(keys, "model.should_pad_vocab"):
        return argument("padded-vocab-size", value)
    if name == "pipeline-model-parallel-layout":
        return argument(name, _layout(value))
    if name == "recompute-granularity" and plain_of(keys, _MODULES) == []:
        return None  # selective, of nothing: the list goes over Megatron-LM's default
    cut = plain_of(keys, "model.pipeline_model_parallel_layout")
    if name == "num-virtual-stages-per-pipeline-rank" and cut is not None:
        return None
    assert name is not None
    return argument(name, _value(name, value))


def plain_of(keys: Keys, key: str) -> Any:
    """A value that another key depends on; None where it is absent."""
    child = keys.tree.children.get(key)
    return plain(child.node) if child else None


def _precision(keys: Keys) -> Iterator[Argument]:
    """The arguments of a precision that is named."""
    for key in _PRECISIONS:
        name = str(keys.get(key, "")).replace("-", "_").removesuffix("_mixed")
        known = dialect().precisions
        if name and name not in known:
            keys.refuse(key, f"`{key}: {name}` is not known", hint(name, known), "TW016")
        for option, value in known.get(name, {}).items():
            if one := argument(option, value):
                yield one


def _implied(keys: Keys) -> Iterator[Argument]:
    """Switches that Megatron-LM asks for, and their keys imply."""
    if plain_of(keys, "model.num_query_groups"):
        yield Argument("group-query-attention")
    names = ("model.activation_func", "model.activation", "model.optim.name")
    function, other, optimizer = (str(plain_of(keys, name) or "") for name in names)
    if "swiglu" in other:
        yield Argument("swiglu")
    if "squared" in function or "relu2" in function:
        yield Argument("squared-relu")
    if "distributed" in optimizer:
        yield Argument("use-distributed-optimizer")
    sizes = ("ddp.bucket_size", "comm_overlap.bucket_size")
    overlaps = any(key.startswith("comm_overlap.") for key in keys.tree.children)
    if overlaps and not any(plain_of(keys, key) for key in sizes):
        yield Argument("ddp-bucket-size", (str(_BUCKET),))


def _value(name: str, value: Any) -> Any:
    """A value as an argument has it."""
    if isinstance(value, str):
        short = value.removeprefix("torch.")
        return _SHORT.get(short, short)
    if name in ("moe-layer-freq", "window-attn-skip-freq") and isinstance(value, list):
        return str(cast("list[Any]", value))
    if name == "window-size" and isinstance(value, list):
        return ",".join(map(str, cast("list[Any]", value)))
    return value


def _layout(value: Any) -> Any:
    """A layout of lists of parts, in letters."""
    if not isinstance(value, list):
        return value
    chunks = cast("list[list[str]]", value)
    return "|".join("".join(_LETTERS.get(part, "?") for part in chunk) for chunk in chunks)
