"""Every rule with a layout that breaks it and one that keeps it (`feasible`)."""

from __future__ import annotations

import pytest

from tests.planning.examples import MOE, VISION, Changes, scenario
from tests.planning.feasible import KEEPS, SECTION
from twin.engine import plan
from twin.errors import ScenarioError
from twin.planning import feasibility
from twin.planning.feasibility import RULES, Rule, problems

GQA = {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 16}

BREAKS: list[tuple[Rule, SECTION, str, str]] = [
    (feasibility.gpus_fill_the_grid, {"parallel": {"pipeline": 3}}, "parallel.pipeline",
        "nearest pipeline=2 or 4, or nodes=3"),
    (feasibility.gpus_fill_the_grid, {"parallel": {"tensor": 3}}, "parallel.tensor",
        "nearest tensor=2 or 4, or nodes=3"),
    (feasibility.experts_need_a_mixture, {"parallel": {"expert": 4}}, "parallel.expert",
        "set expert to 1"),
    (feasibility.expert_divides_experts,
        {"model": {"moe": MOE | {"experts": 384}}, "parallel": {"expert": 20}}, "parallel.expert",
        "nearest 16 or 24"),
    (feasibility.expert_grid_divides_stages,
        {"model": {"moe": MOE}, "parallel": {"expert": 8, "pipeline": 4}}, "parallel.expert",
        "nearest expert=4"),
    (feasibility.experts_need_a_mixture, {"parallel": {"expert_tensor": 2}},
        "parallel.expert_tensor", "set expert_tensor to 1"),
    (feasibility.expert_grid_divides_stages, {"model": {"moe": MOE}, "cluster": {"nodes": 3},
        "parallel": {"expert_tensor": 2, "expert": 8, "pipeline": 3}}, "parallel.expert",
        "nearest expert=4"),
    (feasibility.expert_grid_divides_stages,
        {"model": {"moe": MOE}, "parallel": {"expert_tensor": 32}}, "parallel.expert_tensor",
        "nearest expert_tensor=16"),
    (feasibility.expert_tensor_divides_widths,
        {"model": {"moe": MOE | {"width": 60}}, "parallel": {"expert_tensor": 8}},
        "parallel.expert_tensor", "nearest expert_tensor=6 or 10"),
    (feasibility.cut_experts_need_cut_sequences,
        {"model": {"moe": MOE}, "parallel": {"tensor": 2, "expert_tensor": 2}},
        "parallel.expert_tensor", "set sequence_parallel to true, or expert_tensor to 1"),
    (feasibility.a_rank_has_one_stage, {"model": {"moe": MOE}, "parallel": {"tensor": 2,
        "pipeline": 2, "order": ("tensor", "pipeline", "context", "expert", "data")}},
        "parallel.order", "write pipeline last: [tensor, context, expert, data, pipeline]"),
    (feasibility.gpus_fill_the_grid, {"parallel": {"tensor": 2, "pipeline": 2, "context": 3}},
        "parallel.context", "nearest context=2 or 4, or nodes=3"),
    (feasibility.kept_parameters_serve_one_microbatch,
        {"parallel": {"pipeline": 2, "zero": 3, "reshard_after_forward": False}},
        "parallel.reshard_after_forward", "set reshard_after_forward to true, or zero to 2"),
    (feasibility.kept_parameters_serve_one_microbatch,
        {"parallel": {"zero": 3, "reshard_after_forward": False, "schedule": "gpipe"}},
        "parallel.reshard_after_forward", "set reshard_after_forward to true, or zero to 2"),
    (feasibility.copies_reduce_at_the_end,
        {"parallel": {"pipeline": 2, "zero": 2, "schedule": "dualpipe"}}, "parallel.zero",
        "set zero to 1, or schedule kind to 1f1b"),
    (feasibility.tensor_divides_heads, {"parallel": {"tensor": 16}}, "parallel.tensor",
        "nearest tensor=8"),
    (feasibility.tensor_divides_heads,
        {"model": {"attention": GQA | {"heads": 12}}, "parallel": {"tensor": 6}}, "parallel.tensor",
        "nearest tensor=4 or 12"),
    (feasibility.tensor_divides_widths,
        {"model": {"ffn": {"kind": "gelu", "width": 258}}, "parallel": {"tensor": 4}},
        "parallel.tensor", "nearest tensor=3 or 6"),
    (feasibility.tensor_divides_vocabulary, {"model": {"vocab": 50257}, "parallel": {"tensor": 2}},
        "parallel.tensor", "nearest tensor=1 or 29"),
    (feasibility.ranks_divide_the_sequence, {"parallel": {"tensor": 4, "sequence_parallel": True},
        "train": {"sequence": "66tok", "global_batch": "64seq"}}, "train.sequence",
        "nearest sequence=64tok or 68tok"),
    (feasibility.ranks_divide_the_sequence, {"parallel": {"tensor": 4, "context": 2,
        "sequence_parallel": True}, "train": {"sequence": "60tok", "global_batch": "64seq"}},
        "train.sequence", "nearest sequence=56tok or 64tok"),
    (feasibility.query_heads_share_keys_evenly, {"model": {"attention": GQA | {"kv_heads": 3}}},
        "model.attention.kv_heads", "nearest kv_heads=2 or 4"),
    (feasibility.tokens_choose_existing_experts, {"model": {"moe": MOE | {"top_k": 17}}},
        "model.moe.top_k", "at most 16"),
    (feasibility.products_need_their_tensor_cores, {"train": {"precision": "fp8"}},
        "train.precision",
        "set precision to bf16, or choose nodes of a GPU that has them, such as h100-8gpu"),
    (feasibility.images_have_an_encoder, {"train": {"images": {"patches": 64, "image": 64}}},
        "train.images", "leave images out, or name another model"),
    (feasibility.images_have_an_encoder, {"model": {"vision": VISION}, "parallel": {"tensor": 8},
        "train": {"images": {"patches": 64, "image": 64, "tensor": "cut"}}}, "train.images.tensor",
        "write whole or shared"),
    (feasibility.measured_power_is_above_idle, {"calibration": {"power": "1W"}},
        "calibration.power", "write the power limit of the GPU that was measured, or null"),
    (feasibility.loads_name_every_expert,
        {"model": {"moe": MOE}, "train": {"routing": {"kind": "histogram", "loads": [1, 2]}}},
        "train.routing.loads", "write 16 loads, or `{kind: zipf, s: 0.2}`"),
    (feasibility.experts_take_each_token_once, {"model": {"moe": MOE},
        "train": {"routing": {"kind": "histogram", "loads": [1e3, *[1] * 15]}}},
        "train.routing.loads", "write loads of one layer, counted in tokens"),
    (feasibility.pieces_need_cut_sequences, {"parallel": {"tensor": 2, "overlap_tensor": "pieces"}},
        "parallel.overlap_tensor", "set sequence_parallel to true, or overlap_tensor to bulk"),
    (feasibility.every_second_product_is_known,
        {"train": {"attention_kernel": "unfused"},
            "memory": {"recompute": ("alternate_products",)}},
        "memory.recompute",
        "write full or attention_core; it is for grouped-query and latent attention"),
    (feasibility.fully_shard_shards_parameters, {"memory": {"fully_shard": True}},
        "memory.fully_shard", "set parallel.zero to 3"),
    (feasibility.adapters_have_no_prediction_modules,
        {"model": {"mtp_layers": 1}, "train": {"lora": {"rank": 8}}}, "train.lora",
        "set model.mtp_layers to 0"),
    (feasibility.switches_help_only_where_they_can, {"parallel": {"collectives": "nvls"}},
        "parallel.collectives",
        "write ring or auto, or set cluster.node.nvlink_sharp where they do"),
    (feasibility.places_need_their_dispatcher, {"model": {"moe": MOE},
        "parallel": {"dispatcher": "deepep"}, "train": {"expert_capacity": 1.25}},
        "train.expert_capacity",
        "write parallel.dispatcher=alltoall, or leave train.expert_capacity out"),
    (feasibility.communication_leaves_sms, {"calibration": {"expert_sms": 100}},
        "calibration.expert_sms", "at most 99"),
    (feasibility.dense_layers_are_layers, {"model": {"moe": MOE | {"first_dense_layers": 9}}},
        "model.moe.first_dense_layers", "at most 8"),
    (feasibility.positions_cover_the_sequence, {"model": {"learned_positions": 32}},
        "train.sequence", "at most 32tok"),
    (feasibility.microbatches_are_whole, {"parallel": {"micro_batch": 3}}, "parallel.micro_batch",
        "nearest micro_batch=2 or 4"),
    (feasibility.microbatches_are_whole,
        {"parallel": {"micro_batch": 2}, "train": {"global_batch": "70seq"}}, "train.global_batch",
        "nearest global_batch=64seq or 96seq"),
    (feasibility.tokens_fill_a_step, {"train": {"tokens": "4000tok"}}, "train.tokens",
        "at least 4096tok"),
    (feasibility.every_stage_has_a_layer, {"parallel": {"pipeline": 16}}, "parallel.pipeline",
        "nearest pipeline=8"),
    (feasibility.every_stage_has_a_layer, {"parallel": {"pipeline": 4, "virtual": 3}},
        "parallel.virtual", "at most 2"),
    (feasibility.layers_fill_the_chunks, {"parallel": {"pipeline": 4, "layers": (2, 2, 4)}},
        "parallel.layers", "write 4 entries, or leave layers out: the twin splits them"),
    (feasibility.layers_fill_the_chunks, {"parallel": {"pipeline": 2, "layers": (4, 5)}},
        "parallel.layers", "for example layers[1] = 4"),
    (feasibility.policies_name_every_stage,
        {"parallel": {"pipeline": 2}, "memory": {"by_stage": ({}, {}, {})}}, "memory.by_stage",
        "write one policy per stage (2) or per chunk (2)"),
    (feasibility.schedule_can_run, {"parallel": {"pipeline": 2, "virtual": 2, "schedule": "1f1b"}},
        "parallel.virtual", "set virtual to 1, or schedule kind to interleaved_1f1b"),
    (feasibility.whole_order_can_be_played, {"parallel": {"pipeline": 4, "micro_batch": 2,
        "schedule": "gpipe"}, "train": {"global_batch": "16392seq"}}, "train.global_batch",
        "at most 16384seq, a larger micro_batch, or schedule 1f1b"),
    (feasibility.groups_sit_evenly,
        {"cluster": {"nodes": 3, "gpus": 4}, "parallel": {"tensor": 3}}, "parallel.tensor",
        "nearest tensor=2 or 4"),
    (feasibility.copies_of_shards_divide_replicas, {"parallel": {"shard_copies": 3}},
        "parallel.shard_copies", "nearest shard_copies=2 or 4"),
    (feasibility.copies_of_shards_divide_replicas, {"parallel": {"shard_copies": 2, "zero": 0}},
        "parallel.shard_copies", "set shard_copies to 1, or zero to 1"),
    (feasibility.context_ranks_have_heads, {"parallel": {"context": 4, "context_heads": 3}},
        "parallel.context_heads", "nearest context_heads=2 or 4"),
    (feasibility.context_ranks_have_heads,
        {"parallel": {"context_ring": True}, "train": {"attention_kernel": "unfused"}},
        "parallel.context_ring", "set attention_kernel to flash"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "sections", "path", "hint"), BREAKS, ids=[f"{r.__name__}-{p}" for r, _, p, _ in BREAKS]
)
def test_a_broken_rule_names_the_field_and_the_nearest_fix(
    rule: Rule, sections: SECTION, path: str, hint: str
) -> None:
    (found,) = rule(scenario(**sections))
    assert (found.path, found.hint) == (path, hint)


@pytest.mark.parametrize(("rule", "sections"), KEEPS, ids=[rule.__name__ for rule, _ in KEEPS])
def test_a_kept_rule_is_silent(rule: Rule, sections: SECTION) -> None:
    assert rule(scenario(**sections)) == []


def test_every_rule_has_a_layout_that_breaks_it_and_one_that_keeps_it() -> None:
    assert {rule for rule, *_ in BREAKS} == set(RULES)
    assert {rule for rule, _ in KEEPS} == set(RULES)


@pytest.mark.parametrize(
    ("rule", "sections"),
    [(rule, sections) for rule, sections, *_ in BREAKS],
    ids=[r.__name__ for r, *_ in BREAKS],
)
def test_every_code_is_documented(rule: Rule, sections: SECTION) -> None:
    (found,) = rule(scenario(**sections))
    assert found.code in feasibility.CODES


def test_no_code_stands_for_two_rules() -> None:
    owners = {(rule(scenario(**sections))[0].code, rule.__name__) for rule, sections, *_ in BREAKS}
    codes = [code for code, _ in owners]
    assert len(codes) == len(set(codes))


def test_the_message_counts_what_does_not_divide() -> None:
    broken = scenario(model={"moe": MOE | {"experts": 384}}, parallel={"expert": 20})
    (found,) = feasibility.expert_divides_experts(broken)
    assert found.message == "expert=20 does not divide 384 experts"


@pytest.mark.parametrize(
    ("parallel", "hint"),
    [
        # 3 fills the grid and cuts no heads.
        ({"tensor": 5, "pipeline": 2}, "nearest tensor=4, or nodes=5"),
        ({"tensor": 7, "pipeline": 3}, "nearest tensor=4 or 8, or nodes=21"),
        # 12 stages fill the grid, and there are 8 layers.
        ({"tensor": 2, "pipeline": 7}, "nearest pipeline=6, or nodes=7"),
        ({"tensor": 7, "pipeline": 7}, "change both tensor and pipeline, or nodes=49"),
    ],
)
def test_a_degree_that_is_suggested_to_fill_the_grid_works(parallel: Changes, hint: str) -> None:
    """24 GPUs: what another rule would refuse for that degree is not suggested."""
    (found,) = feasibility.gpus_fill_the_grid(scenario(parallel=parallel, cluster={"nodes": 3}))
    assert found.hint == hint


def test_an_order_that_repeats_may_be_long() -> None:
    long = scenario(parallel={"pipeline": 4}, train={"global_batch": "163840seq"})
    assert feasibility.whole_order_can_be_played(long) == []


def test_all_problems_are_found_at_once() -> None:
    broken = scenario(
        parallel={"tensor": 16, "pipeline": 3, "expert": 2}, train={"tokens": "64tok"}
    )
    assert {problem.path for problem in problems(broken)} == {
        "parallel.pipeline",
        "parallel.expert",
        "parallel.tensor",
        "train.tokens",
    }


def test_an_impossible_layout_has_no_plan() -> None:
    with pytest.raises(ScenarioError, match="does not divide 16 GPUs"):
        plan(scenario(parallel={"pipeline": 3}))


def test_a_field_that_must_be_right_first_silences_the_rules_behind_it() -> None:
    """With pipeline=3 nothing is known of data ranks, so no rule speaks of them."""
    assert {problem.code for problem in problems(scenario(parallel={"pipeline": 3}))} == {"TW102"}
