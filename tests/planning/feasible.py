"""Layouts that keep each rule of feasibility."""

from __future__ import annotations

from tests.planning.examples import MOE, Changes
from twin.planning import feasibility
from twin.planning.feasibility import Rule

SECTION = dict[str, Changes]
"""Changes of a scenario by section."""

KEEPS: list[tuple[Rule, SECTION]] = [
    (feasibility.gpus_fill_the_grid, {"parallel": {"tensor": 2, "pipeline": 4}}),
    (feasibility.experts_need_a_mixture, {"model": {"moe": MOE}, "parallel": {"expert": 4}}),
    (feasibility.expert_divides_experts, {"model": {"moe": MOE}, "parallel": {"expert": 8}}),
    (feasibility.expert_grid_divides_stages,
        {"model": {"moe": MOE}, "parallel": {"expert": 8, "pipeline": 2}}),
    (feasibility.tensor_divides_heads, {"parallel": {"tensor": 4}}),
    (feasibility.tensor_divides_heads, {"parallel": {"tensor": 8}}),
    (feasibility.tensor_divides_widths, {"model": {"moe": MOE}, "parallel": {"tensor": 4}}),
    (feasibility.tensor_divides_vocabulary, {"parallel": {"tensor": 4}}),
    (feasibility.ranks_divide_the_sequence, {"parallel": {"tensor": 4, "sequence_parallel": True}}),
    (feasibility.ranks_divide_the_sequence, {"parallel": {"tensor": 2, "context": 4}}),
    (feasibility.expert_grid_divides_stages, {"model": {"moe": MOE}, "parallel": {"tensor": 4,
        "expert": 8, "sequence_parallel": True}}),
    (feasibility.expert_tensor_divides_widths, {"model": {"moe": MOE}}),
    (feasibility.cut_experts_need_cut_sequences, {"model": {"moe": MOE}, "parallel": {"tensor": 2,
        "expert_tensor": 2, "sequence_parallel": True}}),
    (feasibility.cut_experts_need_cut_sequences,
        {"model": {"moe": MOE}, "parallel": {"expert_tensor": 2}}),
    (feasibility.a_rank_has_one_stage, {"parallel": {"tensor": 2, "pipeline": 2,
        "order": ("tensor", "pipeline", "context", "expert", "data")}}),
    (feasibility.a_rank_has_one_stage, {"model": {"moe": MOE}, "parallel": {"tensor": 2,
        "pipeline": 2, "order": ("pipeline", "tensor", "context", "expert", "data")}}),
    (feasibility.kept_parameters_serve_one_microbatch,
        {"parallel": {"zero": 3, "reshard_after_forward": False}}),
    (feasibility.copies_reduce_at_the_end, {"parallel": {"pipeline": 2, "schedule": "dualpipe"}}),
    (feasibility.query_heads_share_keys_evenly, {}),
    (feasibility.tokens_choose_existing_experts, {"model": {"moe": MOE}}),
    (feasibility.dense_layers_are_layers, {"model": {"moe": MOE | {"first_dense_layers": 8}}}),
    (feasibility.fp8_needs_its_tensor_cores, {"train": {"precision": "bf16"}}),
    (feasibility.places_need_their_dispatcher,
        {"model": {"moe": MOE}, "train": {"expert_capacity": 1.25}}),
    (feasibility.loads_name_every_expert,
        {"model": {"moe": MOE}, "train": {"routing": {"kind": "histogram", "loads": [1] * 16}}}),
    (feasibility.experts_take_each_token_once, {"model": {"moe": MOE | {"top_k": 2}},
        "train": {"routing": {"kind": "histogram", "loads": [15, *[1] * 15]}}}),
    (feasibility.communication_leaves_sms, {"calibration": {"collective_sms": 99}}),
    (feasibility.measured_power_is_above_idle, {"calibration": {"power": "700W"}}),
    (feasibility.pieces_need_cut_sequences,
        {"parallel": {"tensor": 2, "overlap_tensor": "pieces", "sequence_parallel": True}}),
    (feasibility.pieces_need_cut_sequences, {"parallel": {"overlap_tensor": "pieces"}}),
    (feasibility.every_second_product_is_known, {"memory": {"recompute": ("alternate_products",)}}),
    (feasibility.fully_shard_shards_parameters,
        {"memory": {"fully_shard": True}, "parallel": {"zero": 3}}),
    (feasibility.adapters_have_no_prediction_modules, {"train": {"lora": {"rank": 8}}}),
    (feasibility.switches_help_only_where_they_can, {"parallel": {"collectives": "auto"}}),
    (feasibility.positions_cover_the_sequence, {"model": {"learned_positions": 64}}),
    (feasibility.microbatches_are_whole, {"parallel": {"micro_batch": 2}}),
    (feasibility.tokens_fill_a_step, {"train": {"tokens": "4096tok"}}),
    (feasibility.every_stage_has_a_layer, {"parallel": {"pipeline": 8}}),
    (feasibility.layers_fill_the_chunks, {"parallel": {"pipeline": 4, "layers": (0, 3, 3, 2)}}),
    (feasibility.schedule_can_run,
        {"parallel": {"pipeline": 2, "virtual": 2, "schedule": "interleaved_1f1b"}}),
    (feasibility.whole_order_can_be_played, {"parallel": {"pipeline": 4, "micro_batch": 2,
        "schedule": "gpipe"}, "train": {"global_batch": "16384seq"}}),
    (feasibility.groups_sit_evenly,
        {"cluster": {"nodes": 6}, "parallel": {"tensor": 2, "pipeline": 4}}),
]  # fmt: skip
