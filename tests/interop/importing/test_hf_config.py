"""Released configurations give the published parameter counts, and nothing is passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.importing.independent import counted
from tests.interop.importing.test_families import CLASSES
from twin.arch.count import parameters
from twin.errors import UsageError
from twin.interop.importing.as_yaml import catalog_part
from twin.interop.importing.hf_config import FAMILIES, read_hf_config
from twin.loading import catalog_parts, load, load_part
from twin.spec.model import GroupedAttention

CONFIGS = Path(__file__).with_name("configs")
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))

PUBLISHED = {
    # Every number is the total that Hugging Face shows for the released safetensors of the model
    # (`safetensors.total` of its API, or half the `total_size` of its index in bf16), unless said.
    "deepseek-v2": 235_741_434_880,
    "dots-llm1": 142_774_381_696,
    "ernie-4.5-0.3b": 360_748_032,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    # 356,785,898,816 with the prediction layer (below).
    "glm-4.6": 352_797_829_024,
    # 753,864,139,008 with the prediction layer (below).
    "glm-5": 743_911_218_432,
    "hunyuan-a13b": 80_393_183_232,
    "ling-1t": 999_705_328_640,
    "ling-mini-2.0": 16_255_643_392,
    # 561,862,880,256 with the prediction module, of which the configuration says nothing (below).
    "longcat-flash": 560_664_980_480,
    "minimax-m1": 456_089_655_296,
    "minimax-m2": 228_689_764_864,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "olmo-2-13b": 13_716_198_400,
    "olmo-3-7b": 7_298_011_136,
    "phi-4": 14_659_507_200,
    "seed-oss-36b": 36_151_104_512,
    "deepseek-v2-lite": 15_706_484_224,
    # microsoft/MAI-DS-R1: DeepSeek-V3's weights in bf16, without the prediction layer.
    "deepseek-v3": 671_026_419_200,
    # DeepSeek-V3.2-Exp: 685,396,921,376 are published; less prediction layer, its copies of
    # embedding and head, and the fp32 scales (tests/arch/test_sparse_attention.py).
    "deepseek-v3.2": 671_877_944_064,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "glm-4-9b-0414": 9_400_279_040,
    "llama-3.3-nemotron-super-49b": 49_867_145_216,
    "openelm-1.1b": 1_079_891_456,
    "gpt-oss-120b": 116_829_156_672,
    # An audit of the headers of all 61 shards (139,644 tensors).
    "kimi-k2": 1_026_408_232_448,
    "kimi-linear-48b-a3b": 49_122_681_728,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    # 1,728 more are published: 15,960,111,936. That is 27 layers x 64, which the rotary frequencies
    # that the files hold (32 fp32 numbers per layer) come to when bytes are halved.
    "moonlight-16b-a3b": 15_960_111_936 - 27 * 64,
    "nemotron-3-nano-30b-a3b": 31_577_940_288,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    # 81,324,862,720 are published, with the prediction module, of which the configuration says
    # nothing (below).
    "qwen3-next-80b-a3b": 79_674_391_296,
}


def config(name: str) -> dict[str, Any]:
    return json.loads((CONFIGS / f"{name}.json").read_text())


Edit = Callable[..., Path]


@pytest.fixture
def edited(tmp_path: Path) -> Edit:
    """A released configuration with other values; None takes a key out."""

    def write(name: str, **changes: Any) -> Path:
        values = config(name) | changes
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}, indent=2))
        return path

    return write


@pytest.mark.parametrize("name", NAMES)
def test_a_released_configuration_gives_the_published_count(name: str) -> None:
    model = read_hf_config(CONFIGS / f"{name}.json", name).model
    assert parameters(model).total == PUBLISHED[name]


@pytest.mark.parametrize("name", NAMES)
def test_an_independent_count_of_the_same_keys_agrees(name: str) -> None:
    assert counted(config(name)) == PUBLISHED[name]


def test_every_family_is_shown_by_a_released_configuration_or_its_class() -> None:
    assert {config(name)["model_type"] for name in NAMES} | {*CLASSES} == set(FAMILIES)


def test_the_prediction_layer_is_what_deepseek_r1_has_more() -> None:
    """684,489,845,504 are published for DeepSeek-R1, whose files repeat embedding and head beside
    the layer. By the same reckoning GLM-4.5-Air (110,468,824,832) has 2,375,059,584 more than
    INTELLECT-3 (106,852,251,264), which is it without the layer."""
    count = parameters(read_hf_config(CONFIGS / "deepseek-v3.json", "v3").model)
    copies = 2 * 129_280 * 7168
    assert count.total + count.multi_token_prediction + copies == 684_489_845_504
    air = load_part("models", "intellect-3").spec.model_copy(update={"mtp_layers": 1})
    copies = 2 * 151_552 * 4096
    found = parameters(air)
    assert found.total == 106_852_251_264
    assert found.total + found.multi_token_prediction + copies == 110_468_824_832


@pytest.mark.parametrize(
    ("name", "published", "copies"),
    [
        ("glm-4.6", 356_785_898_816, 0),
        ("glm-5", 753_864_139_008, 0),
        ("longcat-flash", 561_862_880_256, 1),
    ],
)
def test_a_prediction_layer_is_what_is_published_more(
    name: str, published: int, copies: int
) -> None:
    """Files of GLM repeat neither embedding nor head, those of LongCat-Flash the embedding. Its
    module has one half of a layer, without experts."""
    own = read_hf_config(CONFIGS / f"{name}.json", name).model
    found = parameters(own.model_copy(update={"mtp_layers": 1}))
    more = found.multi_token_prediction + copies * own.vocab * own.hidden
    assert found.total + more == published


def test_of_experts_without_matrices_the_router_has_a_row() -> None:
    """LongCat-Flash: 12 of 768 are chosen, of which 256 give a token back, so that 8 compute."""
    found = read_hf_config(CONFIGS / "longcat-flash.json", "l")
    assert found.model.moe is not None
    assert (found.model.moe.top_k, found.model.moe.zero_experts) == (8, 256)
    assert any("8 compute on average" in one for one in found.warnings)
    halves = [found.model.blocks(layer) for layer in range(found.model.layers)]
    assert halves == [("attention", "moe"), ("attention", "dense")] * 28


def test_a_language_model_below_the_top_is_read_as_one_beside_its_encoder(edited: Edit) -> None:
    """As transformers writes it since its fifth version."""
    flat = config("qwen2.5-vl-7b")
    beside = ("vision_config", "model_type", "architectures", "image_token_id")
    text = {key: value for key, value in flat.items() if key not in beside}
    gone = dict.fromkeys(text)
    nested = edited("qwen2.5-vl-7b", **gone, text_config=text | {"model_type": "qwen2_5_vl_text"})
    own = read_hf_config(nested, "q").model
    assert own == read_hf_config(CONFIGS / "qwen2.5-vl-7b.json", "q").model


def test_of_other_encoders_the_language_model_is_read_and_the_rest_is_told(tmp_path: Path) -> None:
    path, text = tmp_path / "config.json", config("qwen3-4b")
    tied = {"tie_word_embeddings": text.pop("tie_word_embeddings")}
    whole = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"depth": 27}, **tied}
    path.write_text(json.dumps(whole))
    found = read_hf_config(path, "q")
    plain = read_hf_config(CONFIGS / "qwen3-4b.json", "q").model
    assert found.model.model_copy(update={"left_out": ""}) == plain
    assert found.warnings == ("Left out: what `qwen3_vl` has beside its language model.",)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"deepstack": [8]}, "does not know what `vision_config.deepstack` changes"),
        ({"fullatt_block_indexes": [0, 31]}, "not each n-th layer"),
        ({"hidden_act": "relu"}, "`vision_config.hidden_act: relu` cannot be expressed"),
        ({"depth": "many"}, "`vision_config.depth` has another type"),
    ],
)
def test_an_encoder_that_cannot_be_expressed_is_refused(
    change: dict[str, Any], told: str, edited: Edit
) -> None:
    vision = config("qwen2.5-vl-7b")["vision_config"] | change
    with pytest.raises(UsageError, match=told):
        read_hf_config(edited("qwen2.5-vl-7b", vision_config=vision), "q")


def test_the_prediction_module_is_what_qwen3_next_has_more() -> None:
    """Its files repeat neither embedding nor head."""
    own = read_hf_config(CONFIGS / "qwen3-next-80b-a3b.json", "q").model
    found = parameters(own.model_copy(update={"mtp_layers": 1}))
    assert found.total + found.multi_token_prediction == 81_324_862_720


@pytest.mark.parametrize("name", [n for n in NAMES if n in catalog_parts("models")])
def test_the_catalog_says_what_the_released_configuration_says(name: str) -> None:
    found = read_hf_config(CONFIGS / f"{name}.json", name).model
    own, ours = (
        one.model_copy(update={"left_out": ""}) for one in (found, load_part("models", name).spec)
    )
    assert own == ours


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_loads_as_a_part_beside_a_scenario(name: str, tmp_path: Path) -> None:
    model = read_hf_config(CONFIGS / f"{name}.json", "imported").model
    models = tmp_path / "catalog" / "models"
    models.mkdir(parents=True)
    (models / "imported.yaml").write_text(catalog_part(model, "config.json"))
    part = load_part("models", "imported", [tmp_path])
    assert part.spec == model
    assert {number.kind for number in part.ledger.values()} == {"datasheet"}
    scenario = tmp_path / "s.yaml"
    scenario.write_text("schema: 1\nextends: kimi-k2-256xh800.yaml\nname: s\nmodel: imported\n")
    assert load(scenario).model == model


@pytest.mark.parametrize(
    ("name", "changes", "more"),
    [
        # Each changes the count by what can be said in one line.
        ("llama-3.1-8b", {"tie_word_embeddings": True}, -128_256 * 4096),
        ("llama-3.1-8b", {"attention_bias": True}, 32 * (4096 + 2 * 1024 + 4096)),
        ("llama-3.1-8b", {"mlp_bias": True}, 32 * (2 * 14_336 + 4096)),
        ("llama-3.1-8b", {"head_dim": 64}, -32 * 64 * 4096 * (2 * 32 + 2 * 8)),
        ("llama-3.1-8b", {"num_key_value_heads": None}, 32 * 4096 * 128 * 2 * 24),
        ("qwen3-30b-a3b", {"mlp_only_layers": [0]}, 3 * 2048 * (6144 - 128 * 768) - 2048 * 128),
        (
            "qwen3-30b-a3b",
            {"decoder_sparse_step": 2},
            24 * (3 * 2048 * (6144 - 128 * 768) - 2048 * 128),
        ),
        ("deepseek-v3", {"topk_method": "greedy"}, -58 * 256),
        ("kimi-k2", {"first_k_dense_replace": 0}, 1_042_970_097_536 - 1_026_408_232_448),
        ("kimi-k2", {"n_shared_experts": None}, -60 * 3 * 7168 * 2048),
    ],
)
def test_keys_that_change_the_count_do(
    edited: Edit, name: str, changes: dict[str, Any], more: int
) -> None:
    model = read_hf_config(edited(name, **changes), name).model
    assert parameters(model).total == PUBLISHED[name] + more


@pytest.mark.parametrize(
    ("name", "changes", "groups"),
    [
        ("deepseek-v3", {}, (8, 4)),
        ("kimi-k2", {}, (1, 1)),
        ("deepseek-v2", {}, (8, 3)),
        ("deepseek-v2", {"topk_method": "greedy"}, (1, 1)),
    ],
)
def test_a_router_that_is_limited_to_groups_says_so(
    edited: Edit, name: str, changes: dict[str, Any], groups: tuple[int, int]
) -> None:
    moe = read_hf_config(edited(name, **changes), name).model.moe
    assert moe is not None
    assert (moe.groups, moe.top_groups) == groups


YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}


def test_how_positions_rotate_is_read_from_either_major_of_transformers(edited: Edit) -> None:
    old = read_hf_config(edited("kimi-k2"), "m").model.rope
    both = {**config("kimi-k2")["rope_scaling"], "rope_theta": 50_000.0, "rope_type": "yarn"}
    del both["type"]
    path = edited("kimi-k2", rope_scaling=None, rope_theta=None, rope_parameters=both)
    assert read_hf_config(path, "m").model.rope == old
    assert old.theta == 50_000
    assert old.yarn is not None
    assert old.yarn.model_dump() == {
        "factor": 32,
        "original_context": 4096,
        "beta_fast": 1,
        "beta_slow": 1,
        "mscale": 1,
        "mscale_all_dim": 1,
    }


def test_what_yarn_does_not_say_is_as_in_deepseek_s_code(edited: Edit) -> None:
    yarn = read_hf_config(edited("kimi-k2", rope_scaling=YARN), "m").model.rope.yarn
    assert yarn is not None
    assert (yarn.factor, yarn.original_context) == (40, 4096)
    assert (yarn.beta_fast, yarn.beta_slow, yarn.mscale, yarn.mscale_all_dim) == (32, 1, 1, 0)


@pytest.mark.parametrize(
    ("name", "theta", "eps"),
    [("mixtral-8x7b", 1e6, 1e-5), ("llama-3.1-8b", 1e4, 1e-6), ("kimi-k2", 1e4, 1e-6)],
)
def test_a_family_has_defaults_of_its_own(edited: Edit, name: str, theta: float, eps: float):
    model = read_hf_config(edited(name, rope_theta=None, rms_norm_eps=None), "m").model
    assert (model.rope.theta, model.norm_eps) == (theta, eps)


@pytest.mark.parametrize(
    ("name", "router"),
    [
        ("kimi-k2", ("sigmoid", True, 2.827)),
        ("deepseek-v3", ("sigmoid", True, 2.5)),
        ("deepseek-v2", ("softmax", False, 16.0)),
        ("qwen2-57b-a14b", ("softmax", False, 1.0)),
        ("qwen3-30b-a3b", ("softmax", True, 1.0)),
        ("mixtral-8x7b", ("softmax", True, 1.0)),
    ],
)
def test_what_the_router_makes_of_its_logits_is_read(
    name: str, router: tuple[str, bool, float]
) -> None:
    moe = read_hf_config(CONFIGS / f"{name}.json", name).model.moe
    assert moe is not None
    assert (moe.scores, moe.normalize_weights, moe.routed_scale) == router


def test_groups_that_hold_too_few_experts_are_refused(edited: Edit) -> None:
    with pytest.raises(UsageError, match="cannot choose 8 of 256 experts in 9 of 8 groups"):
        read_hf_config(edited("deepseek-v3", topk_group=9), "m")


def test_prediction_layers_are_read_and_counted_apart(edited: Edit) -> None:
    model = read_hf_config(edited("kimi-k2", num_nextn_predict_layers=2), "k2").model
    assert model.mtp_layers == 2
    assert parameters(model).total == PUBLISHED["kimi-k2"]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("llama-3.1-8b", {"model_type": "gemma4"}, "TW041 models of the family `gemma4`"),
        ("llama-3.1-8b", {"model_type": "jamba"}, "supported are: deepseek_v3, kimi_k2"),
        ("llama-3.1-8b", {"model_type": "mixtrall"}, "did you mean `mixtral`? supported are"),
        ("llama-3.1-8b", {"model_type": None}, "TW041 the configuration has no `model_type`"),
        (
            "llama-3.1-8b",
            {"model_type": "llava", "text_config": {"model_type": "jamba"}},
            "models of the family `jamba` are not supported",
        ),
        ("llama-3.1-8b", {"hidden_act": "gelu"}, "TW042 `hidden_act: gelu` cannot be expressed"),
        ("llama-3.1-8b", {"attention_bais": True}, "did you mean `attention_bias`?"),
        ("llama-3.1-8b", {"final_logit_softcapping": 30}, "TW043 twin does not know what"),
        ("llama-3.1-8b", {"hidden_size": None}, "TW011 the configuration has no `hidden_size`"),
        ("llama-3.1-8b", {"hidden_size": "4096"}, "TW014 `hidden_size` must be a whole number"),
        ("llama-3.1-8b", {"num_attention_heads": 33}, "TW042 33 heads do not share 4096 evenly"),
        ("llama-3.1-8b", {"num_hidden_layers": 0}, "TW015 `num_hidden_layers` must be at least 1"),
        ("qwen3-32b", {"layer_types": ["linear_attention"]}, "layers of linear_attention cannot"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "`moe_layer_freq: 2` cannot be expressed"),
        ("deepseek-v3", {"attention_bias": True}, "latent attention here has no biases"),
        ("kimi-k2", {"rope_scaling": {**YARN, "truncate": False}}, "`rope_scaling.truncate`"),
        ("kimi-k2", {"rope_scaling": {**YARN, "factor": 0.5}}, "rope.yarn.factor = 0.5"),
        ("kimi-k2", {"rope_scaling": "yarn"}, "TW014 `rope_scaling` must be an object"),
        ("kimi-k2", {"rope_theta": "10k"}, "TW014 `rope_theta` must be a number"),
        ("kimi-k2", {"scoring_func": "tanh"}, "moe.scores = 'tanh'"),
        ("gpt-oss-120b", {"layer_types": ["full_attention"] * 36}, "layers have to be in turns"),
        ("kimi-linear-48b-a3b", {"mla_use_nope": False}, "its latent attention has no positions"),
        ("kimi-linear-48b-a3b", {"linear_attn_config": {}}, "mixer.kda.num_heads = None"),
        ("nemotron-3-nano-30b-a3b", {"mlp_hidden_act": "silu"}, "blocks are squared ReLUs"),
        ("nemotron-3-nano-30b-a3b", {"num_hidden_layers": 51}, "another number of layers"),
        ("nemotron-3-nano-30b-a3b", {"hybrid_override_pattern": "MX"}, "layers of X cannot"),
        ("qwen3-next-80b-a3b", {"layer_types": ["conv"] * 48}, "layers of conv cannot"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_name_and_place(
    edited: Edit, name: str, changes: dict[str, Any], said: str
) -> None:
    path = edited(name, **changes)
    with pytest.raises(UsageError) as caught:
        read_hf_config(path, name)
    assert said in str(caught.value)
    assert f"{path}:" in str(caught.value)


def test_all_problems_are_told_at_once(edited: Edit) -> None:
    path = edited("llama-3.1-8b", hidden_act="gelu", vocab_size=None, router="x")
    with pytest.raises(UsageError) as caught:
        read_hf_config(path, "m")
    assert [problem.code for problem in caught.value.problems] == ["TW042", "TW011", "TW043"]


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("deepseek-v3", {}, "quantized"),
        ("llama-3.1-8b", {"attention_dropout": 0.1}, "dropout in attention"),
        ("llama-3.1-8b", {}, "stretched by `llama3`"),
    ],
)
def test_what_is_left_out_is_said(edited: Edit, name: str, changes: dict[str, Any], said: str):
    imported = read_hf_config(edited(name, **changes), name)
    assert said in " ".join(imported.warnings)


TURNS = ["sliding_attention"] * 5 + ["full_attention"]


@pytest.mark.parametrize(
    ("name", "changes", "window"),
    [
        ("mixtral-8x7b", {"sliding_window": 4096}, (4096, None)),
        ("qwen2.5-7b", {"use_sliding_window": True}, (None, None)),
        ("qwen2.5-7b", {"use_sliding_window": True, "max_window_layers": 0}, (131_072, None)),
        ("qwen3-30b-a3b", {"sliding_window": 512, "layer_types": TURNS * 8}, (None, None)),
        (
            "qwen3-30b-a3b",
            {"use_sliding_window": True, "sliding_window": 512, "layer_types": TURNS * 8},
            (512, 6),
        ),
        ("gpt-oss-120b", {}, (128, 2)),
    ],
)
def test_windows_are_read(
    edited: Edit, name: str, changes: dict[str, Any], window: tuple[int | None, int | None]
) -> None:
    own = read_hf_config(edited(name, **changes), name).model.attention
    assert isinstance(own, GroupedAttention)
    assert (own.window, own.full_every) == window


def test_layers_in_no_regular_turns_are_a_pattern(edited: Edit) -> None:
    """Qwen2's first layers without windows, and a dense layer between those with experts."""
    late = {"use_sliding_window": True, "max_window_layers": 20}
    model = read_hf_config(edited("qwen2.5-7b", **late), "q").model
    assert model.pattern == ("attention+dense",) * 20 + ("window+dense",) * 8
    model = read_hf_config(edited("qwen3-30b-a3b", mlp_only_layers=[5]), "q").model
    assert [at for at in range(48) if not model.has_experts(at)] == [5]
    more = 3 * 2048 * (6144 - 128 * 768) - 2048 * 128
    assert parameters(model).total == PUBLISHED["qwen3-30b-a3b"] + more


def test_a_window_that_is_not_used_is_no_matter() -> None:
    assert read_hf_config(CONFIGS / "qwen2.5-7b.json", "q").warnings == ()


@pytest.mark.parametrize("text", ["[1, 2]", "", '{"a": 1', '{"a": 1, "a": 2}', "\x00", "{}"])
def test_a_file_that_is_no_configuration_is_explained(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        read_hf_config(path, "m")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hidden_size: 8\n", r":1:1: TW002 not JSON: expecting value"),
        ('{\n "a": 1,\n "b" 2}', r":3:6: TW002 not JSON: expecting ':' delimiter"),
        ("[" * 100_000, r"TW002 nested too deeply"),
    ],
)
def test_what_is_no_json_is_told_in_the_words_of_json(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_hf_config(path, "m")


def test_tabs_are_space_in_json(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config("llama-3.1-8b"), indent="\t"))
    assert parameters(read_hf_config(path, "m").model).total == PUBLISHED["llama-3.1-8b"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 0}, r"TW015 `hidden_size` must be at least 1"),
        ({"num_hidden_layers": -1}, r"TW015 `num_hidden_layers` must be at least 1"),
        ({"mlp_only_layers": 3}, r"TW014 `mlp_only_layers` must be a list"),
        ({"layer_types": "full_attention"}, r"TW014 `layer_types` must be a list"),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_is_told_at_its_key(
    edited: Edit, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=rf"\.json:[0-9]+:3: {said}"):
        read_hf_config(edited("qwen3-30b-a3b", **changes), "x")
