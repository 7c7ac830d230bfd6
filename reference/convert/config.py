"""Configurations and tensor names of Hugging Face folders.

`config.json` of a Hugging Face folder to the model that it describes, and back.

Reading refuses by name what no field expresses; writing reads its own result again, so that nothing
is lost in silence. Keys that change no computation (token ids, initialisation, lengths) are kept as
they are beside the model.

The simulator has a reader of its own for more families; it counts and may leave things out, this
one computes and may not.

Which tensor of a Hugging Face folder is which part of a tensor of the reference.

Released names are those of DeepSeek-V3 and Kimi K2 (and, for grouped-query attention, of Llama and
Qwen3): one tensor per expert, gate and up apart. Ours stack all experts of a layer and lay gates
over ups, [2F, D]. Every part of ours is a run of whole rows, so that the released tensors of one of
ours, in order, are its bytes; nothing is transposed or permuted.

Shapes: D hidden, F width of a block, H heads, G key-value heads, Q query-key width, V value width,
L query latent, C key-value latent, R rotary width, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from reference.files import yaml_table
from twin.errors import Problem, UsageError
from twin.loading.tree import hint, nearest
from twin.spec.model import GroupedAttention, LatentAttention, ModelSpec

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """The keys of one architecture (`families.yaml`)."""

    architecture: str
    model_type: str
    keys: Mapping[str, str]
    """Key -> dotted field of the model."""
    fixed: Mapping[str, Any]
    """Keys with the only value that the reference computes with; absent is as good."""
    implied: Mapping[str, Any]
    """Fields that the name alone says."""
    ignored: list[str]
    """Keys that repeat others, or are looked at apart."""


TABLES: Final[Json] = yaml_table(Path(__file__).with_name("families.yaml"))
KEPT, STORAGE, PREDICTIONS = TABLES["kept"], TABLES["storage"], TABLES["predictions"]
YARN: Final[Mapping[str, str]] = TABLES["yarn"]
FAMILIES: Final = {name: Family(**table) for name, table in TABLES["families"].items()}
DEEPSEEK: Final = FAMILIES["deepseek_v3"]
FAMILIES["kimi_k2"] = DEEPSEEK  # by another name
_LENGTH: Final = 4096
"""Positions that a written configuration claims where nothing says how many: K2's in
pre-training (arXiv:2507.20534, section 2.5)."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a `config.json` says."""

    model: ModelSpec
    kept: Json
    """Keys kept as they are."""
    prediction_layers: int
    """That the released model has behind its last layer, and the reference leaves out."""


def model_of(config: Json, name: str) -> Config:
    """The model of a configuration, under a name.

    Raises UsageError with everything that cannot be computed as the configuration says: TW251 an
    unknown architecture, TW252 a key.
    """
    family, full = _family(config), _completed(config)
    rope, problems = _rope(config)
    problems = [*_unknown(family, config), *_other(family, full), *problems]
    fields: Json = {"name": name, "ffn": {"kind": "swiglu"}, "rope": rope}
    for path, value in family.implied.items():
        _put(fields, path, value)
    for key, path in family.keys.items():
        if full.get(key) is None and key != "q_lora_rank":
            problems.append(_problem(key, f"the configuration has no `{key}`"))
        _put(fields, path, full.get(key))
    if problems:
        raise UsageError(problems)
    try:
        model = ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise UsageError(_invalid(error, family)) from None
    kept = {key: value for key, value in config.items() if key in KEPT}
    counts = [config[key] for key in PREDICTIONS if isinstance(config.get(key), int)]
    return Config(model, kept, max(counts, default=0))


def config_of(model: ModelSpec, kept: Json) -> Json:
    """The `config.json` of a model, with the keys kept from the one that it came from.

    Raises UsageError TW257 for a model that no supported architecture is, naming the fields that
    would be lost.
    """
    family = family_of(model)
    if family is DEEPSEEK and model.moe is None:
        raise UsageError([_lost(model, family, {"moe"})])
    config = _written(family, model)
    again = _leaves(model_of(config, model.name).model)
    different = {path for path, value in _leaves(model).items() if again.get(path) != value}
    if lost := {path if path in again else path.rpartition(".")[0] for path in different}:
        raise UsageError([_lost(model, family, lost)])
    yarn = model.rope.yarn
    longest = int(yarn.original_context * yarn.factor) if yarn else _LENGTH
    return dict(sorted({"max_position_embeddings": longest, **config, **kept}.items()))


def family_of(model: ModelSpec) -> Family:
    """The architecture nearest to a model."""
    if not isinstance(model.attention, GroupedAttention):
        return DEEPSEEK
    return FAMILIES["qwen3" if model.attention.qk_norm else "llama"]


def _family(config: Json) -> Family:
    kind, named = config.get("model_type"), config.get("architectures")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is not None and named in (None, [family.architecture]):
        return family
    wrong = str(kind) if family is None else f"{named}"
    options = list(FAMILIES) if family is None else [family.architecture]
    message = f"the architecture `{wrong}` is none that the reference runs"
    fix = hint(wrong, options, "the reference runs")
    raise UsageError([Problem("TW251", "config.json", message, fix)])


def _completed(config: Json) -> Json:
    """With what older configurations leave out: heads share out the hidden width, each with keys
    and values of its own."""
    full: Json = {"tie_word_embeddings": False, **config}
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if full.get("num_key_value_heads") is None:
        full["num_key_value_heads"] = heads
    if full.get("head_dim") is None and isinstance(heads, int) and isinstance(hidden, int):
        full["head_dim"] = hidden // max(heads, 1)
    return full


def _unknown(family: Family, config: Json) -> list[Problem]:
    known = {*family.keys, *family.fixed, *family.ignored, *KEPT, *STORAGE, *PREDICTIONS}
    problems: list[Problem] = []
    for key in sorted(key for key in config.keys() - known if config[key] is not None):
        near = nearest(key, known)
        fix = f"did you mean `{near}`?" if near else "if it changes nothing, take it out of a copy"
        problems.append(_problem(key, f"what `{key}` changes is not known here", fix))
    return problems


def _other(family: Family, config: Json) -> list[Problem]:
    """Values of keys that the reference knows one value of."""
    problems = [
        _problem(key, f"`{key}: {config[key]}` is not computed here, only `{value}`")
        for key, value in family.fixed.items()
        if config.get(key) is not None and config[key] != value
    ]
    if family is DEEPSEEK and config["num_key_value_heads"] != config.get("num_attention_heads"):
        message = "latent attention has as many as `num_attention_heads`"
        problems.append(_problem("num_key_value_heads", message))
    if set(config.get("layer_types") or ()) - {"full_attention"}:
        problems.append(_problem("layer_types", "here every layer sees all tokens before"))
    return problems


def _rope(config: Json) -> tuple[Json, list[Problem]]:
    """`rope_theta` and `rope_scaling`, or both in the `rope_parameters` of transformers 5; with
    what is wrong in them."""
    both: Json = config.get("rope_parameters") or {}
    key = "rope_parameters" if both else "rope_scaling"
    scaling: Json = both or config.get("rope_scaling") or {}
    theta = both.get("rope_theta", config.get("rope_theta"))
    if theta is None:
        return {}, [_problem("rope_theta", "the configuration has no `rope_theta`")]
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return {"theta": theta}, []
    if kind != "yarn":
        return {}, [_problem(key, f"positions stretched by `{kind}` are not computed here")]
    given = {name: value for name, value in scaling.items() if value is not None}
    yarn = {ours: given[name] for name, ours in YARN.items() if name in given}
    yarn["original_context"] = f"{yarn.get('original_context')}tok"
    other = given.keys() - YARN.keys() - {"type", "rope_type", "rope_theta"}
    problems = [
        _problem(f"{key}.{name}", f"YaRN's `{name}` is not computed here") for name in sorted(other)
    ]
    if bool(given.get("mscale", 1) != 1 or given.get("mscale_all_dim")) and not (
        given.get("mscale") and given.get("mscale_all_dim")
    ):
        message = "of `mscale` and `mscale_all_dim` one alone has no one meaning"
        problems.append(_problem(f"{key}.mscale", message))
    return {"theta": theta, "yarn": TABLES["yarn_defaults"] | yarn}, problems


def _invalid(error: ValidationError, family: Family) -> list[Problem]:
    """What pydantic found, under the key that said so."""
    keys = {path: key for key, path in family.keys.items()}
    found: list[Problem] = []
    for entry in error.errors(include_url=False):
        # The tag of the union of attentions is no field.
        path = ".".join(str(step) for step in entry["loc"] if step not in ("mla", "gqa"))
        key = keys.get(path, path)
        found.append(_problem(key, f"`{key}` = {entry['input']!r}: {entry['msg']}"))
    return found


def _written(family: Family, model: ModelSpec) -> Json:
    fields = model.model_dump()
    config = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        **family.fixed,
        **{key: _get(fields, path) for key, path in family.keys.items()},
        "rope_theta": model.rope.theta,
    }
    if family is DEEPSEEK:
        config |= {"num_key_value_heads": model.attention.heads, "num_nextn_predict_layers": 0}
    if model.rope.yarn is not None:
        stretched = model.rope.yarn.model_dump()
        config["rope_scaling"] = {
            "type": "yarn",
            **{key: stretched[path] for key, path in YARN.items()},
        }
    return config


def _lost(model: ModelSpec, family: Family, fields: set[str]) -> Problem:
    named = ", ".join(f"`{path}`" for path in sorted(fields))
    message = f"{model.name} is no {family.architecture}, which has other {named}"
    known = sorted({one.architecture for one in FAMILIES.values()})
    return Problem("TW257", "model", message, f"the reference writes {', '.join(known)}")


def _leaves(model: ModelSpec) -> Json:
    """Every field by its path, without what only a reader is told."""

    def below(fields: Json, path: str) -> Json:
        found: Json = {}
        for key, value in fields.items():
            nested = isinstance(value, dict)
            found |= below(value, f"{path}{key}.") if nested else {f"{path}{key}": value}
        return found

    return below(model.model_dump(exclude={"left_out"}), "")


def _put(fields: Json, path: str, value: Any) -> None:
    section, _, field = path.rpartition(".")
    (fields.setdefault(section, {}) if section else fields)[field] = value


def _get(fields: Json, path: str) -> Any:
    section, _, field = path.rpartition(".")
    return (fields[section] if section else fields)[field]


def _problem(key: str, message: str, fix: str = "") -> Problem:
    return Problem("TW252", f"config.json {key}", message, fix)


@dataclass(frozen=True, slots=True)
class ReleasedPart:
    """One released tensor, and the rows of ours that it is."""

    ours: str
    theirs: str
    shape: tuple[int, ...]
    """Of the released tensor."""
    first_row: int = 0
    """Where it begins in ours, or in its expert of ours."""
    expert: int | None = None

    def of(self, tensor: object) -> object:
        """This part of ours, or of anything that is indexed like it."""
        rows = slice(self.first_row, self.first_row + self.shape[0])
        index = rows if self.expert is None else (self.expert, rows)
        return tensor[index]  # pyright: ignore[reportIndexIssue]


@dataclass(frozen=True, slots=True)
class Whole:
    """One of our tensors, and the parts that follow one another in it."""

    name: str
    shape: tuple[int, ...]
    parts: tuple[ReleasedPart, ...]


def tensors(model: ModelSpec) -> Iterator[Whole]:
    """Every tensor that a checkpoint of the reference holds, in the order of the layers."""
    for name, parts in groupby(_parts(model), key=lambda part: part.ours):
        held = tuple(parts)
        experts = [part.expert for part in held if part.expert is not None]
        rows = max(part.first_row + part.shape[0] for part in held)
        stacked = (max(experts) + 1,) if experts else ()
        yield Whole(name, (*stacked, rows, *held[0].shape[1:]), held)


def _parts(model: ModelSpec) -> Iterator[ReleasedPart]:
    table = (model.vocab, model.hidden)
    yield ReleasedPart("embedding.weight", "model.embed_tokens.weight", table)
    for layer in range(model.layers):
        ours, theirs = f"layers.{layer}.", f"model.layers.{layer}."
        for part in _layer(model, layer):
            yield ReleasedPart(
                ours + part.ours, theirs + part.theirs, part.shape, part.first_row, part.expert
            )
    yield ReleasedPart("final_norm.gain", "model.norm.weight", (model.hidden,))
    if not model.tied_embeddings:
        yield ReleasedPart("head.weight", "lm_head.weight", table)


def _layer(model: ModelSpec, layer: int) -> Iterator[ReleasedPart]:
    norm = (model.hidden,)
    yield ReleasedPart("attention_norm.gain", "input_layernorm.weight", norm)
    attention = model.attention
    if isinstance(attention, LatentAttention):
        yield from _latent(attention, model.hidden)
    else:
        yield from _grouped(attention, model.hidden)
    yield ReleasedPart("ffn_norm.gain", "post_attention_layernorm.weight", norm)
    if model.has_experts(layer):
        yield from _experts(model)
    else:
        yield from _swiglu("ffn", "mlp", model.hidden, model.ffn.width)


def _latent(spec: LatentAttention, D: int) -> Iterator[ReleasedPart]:
    ours, theirs = "attention.", "self_attn."
    L, C, R = spec.q_lora_rank, spec.kv_lora_rank, spec.qk_rope_head_dim
    Q, V = spec.qk_nope_head_dim + R, spec.v_head_dim
    H = spec.heads
    if L is None:
        yield ReleasedPart(f"{ours}q.weight", f"{theirs}q_proj.weight", (H * Q, D))
    else:
        yield ReleasedPart(f"{ours}q_down.weight", f"{theirs}q_a_proj.weight", (L, D))
        yield ReleasedPart(f"{ours}q_norm.gain", f"{theirs}q_a_layernorm.weight", (L,))
        yield ReleasedPart(f"{ours}q_up.weight", f"{theirs}q_b_proj.weight", (H * Q, L))
    up = H * (spec.qk_nope_head_dim + V)
    yield ReleasedPart(f"{ours}kv_down.weight", f"{theirs}kv_a_proj_with_mqa.weight", (C + R, D))
    yield ReleasedPart(f"{ours}kv_norm.gain", f"{theirs}kv_a_layernorm.weight", (C,))
    yield ReleasedPart(f"{ours}kv_up.weight", f"{theirs}kv_b_proj.weight", (up, C))
    yield ReleasedPart(f"{ours}out.weight", f"{theirs}o_proj.weight", (D, H * V))


def _grouped(spec: GroupedAttention, D: int) -> Iterator[ReleasedPart]:
    Q = spec.head_dim
    for name, heads in (("q", spec.heads), ("k", spec.kv_heads), ("v", spec.kv_heads)):
        shape = (heads * Q, D)
        yield ReleasedPart(f"attention.{name}.weight", f"self_attn.{name}_proj.weight", shape)
    yield ReleasedPart("attention.out.weight", "self_attn.o_proj.weight", (D, spec.heads * Q))
    for name in ("q_norm", "k_norm") if spec.qk_norm else ():
        yield ReleasedPart(f"attention.{name}.gain", f"self_attn.{name}.weight", (Q,))


def _experts(model: ModelSpec) -> Iterator[ReleasedPart]:
    moe, D = model.moe, model.hidden
    assert moe is not None, "only layers with experts are asked"
    E, F = moe.experts, moe.width
    yield ReleasedPart("ffn.router.weight", "mlp.gate.weight", (E, D))
    if moe.correction_bias:
        yield ReleasedPart("ffn.router.bias", "mlp.gate.e_score_correction_bias", (E,))
    for expert in range(E):
        own = f"mlp.experts.{expert}"
        yield ReleasedPart("ffn.experts.up", f"{own}.gate_proj.weight", (F, D), 0, expert)
        yield ReleasedPart("ffn.experts.up", f"{own}.up_proj.weight", (F, D), F, expert)
    for expert in range(E):
        own = f"mlp.experts.{expert}.down_proj.weight"
        yield ReleasedPart("ffn.experts.down", own, (D, F), 0, expert)
    if moe.shared_experts:
        width = moe.shared_width or moe.width * moe.shared_experts
        yield from _swiglu("ffn.shared", "mlp.shared_experts", D, width)


def _swiglu(ours: str, theirs: str, D: int, F: int) -> Iterator[ReleasedPart]:
    yield ReleasedPart(f"{ours}.up.weight", f"{theirs}.gate_proj.weight", (F, D))
    yield ReleasedPart(f"{ours}.up.weight", f"{theirs}.up_proj.weight", (F, D), F)
    yield ReleasedPart(f"{ours}.down.weight", f"{theirs}.down_proj.weight", (D, F))
