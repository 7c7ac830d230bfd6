"""Rows of weight updates, schedules, optimizers and facts."""

from __future__ import annotations

import pytest

from tests.evidence.validate.rows import row, shipped
from twin.evidence.validate import other_rows
from twin.evidence.validate.answer import RowResult, not_predicted
from twin.evidence.validate.other_rows import schedules as bubbles
from twin.evidence.validate.other_rows import weight_updates as updates
from twin.evidence.validate.suite import PublishedRow, refusal
from twin.evidence.validate.validate import answer

KIMI = "checkpoint-engine-new-kimi-k2-16xh20"


def test_an_update_and_a_recovery_are_the_shipped_scenarios() -> None:
    """15.1 s and 16.8 s (docs/weight-update.md)."""
    found = {one.id: one for one in updates(shipped(KIMI))}
    assert found[f"{KIMI}[update]"].predicted == pytest.approx(15.1, abs=0.05)
    assert found[f"{KIMI}[recover]"].predicted == pytest.approx(16.8, abs=0.05)
    assert {one.metric for one in found.values()} == {"update_seconds"}
    assert {one.use for one in found.values()} == {"check"}


def test_an_update_of_engines_apart_is_bound_by_calls_per_tensor() -> None:
    """Of Qwen2.5 7B: 339 tensors, each 40 us and 14 us for each of 28 layers."""
    (one,) = updates(shipped("verl-paramsync-qwen2.5-math-7b-4-4"))
    assert one.predicted == pytest.approx(339 * (40e-6 + 28 * 14e-6), rel=0.12)
    assert (one.measured, one.stack) == (0.12, "verl-collective")


def test_releases_of_an_updater_have_parts_of_their_own() -> None:
    old, new = (next(iter(updates(shipped(KIMI.replace("new", r))))) for r in ("old", "new"))
    assert (old.stack, new.stack) == ("checkpoint-engine-vllm-0.1", "checkpoint-engine-vllm")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"system": {"gpu": "H20"}}, "how many GPUs"),
        ({"system": {"gpu": "Gaudi 3", "gpus": 32}}, "no GPU Gaudi 3"),
        ({"model": "nobody-3b"}, "no model nobody-3b"),
        ({"parallelism": {"trainer": "FSDP", "inference": "FP8"}}, "GPUs of their own"),
        ({"metrics": {"update_s": 1.3}}, "no update or recovery"),
        ({"parallelism": {}}, "cannot be read"),
        ({"parallelism": {"inference_tp": 5}}, ""),
    ],
)
def test_updates_that_no_scenario_is_say_why(changes: dict[str, object], word: str) -> None:
    (one,) = updates(PublishedRow({**shipped(KIMI).fields, **changes}, {}))
    assert one.status == "not_expressible"
    assert word in one.reason
    assert one.reason


@pytest.mark.parametrize(("gpu", "gpus"), [("H800", 8), ("H100", 16), ("H200", 8), ("B200", 8)])
def test_updates_run_on_the_nodes_of_any_gpu(gpu: str, gpus: int) -> None:
    """Only NVLink differs much, which binds on one node alone."""
    changes = {
        "system": {"gpu": gpu, "gpus": gpus},
        "model": "qwen3-235b-a22b",
        "precision": "BF16",
        "parallelism": {"inference_tp": 8},
    }
    same = {**shipped(KIMI).fields, **changes}
    slow = {**same, "system": {"gpu": "H20", "gpus": gpus}}
    found, other = (tuple(updates(PublishedRow(one, {}))) for one in (same, slow))
    assert [one.status for one in found] == ["predicted"] * 2
    for one, h20 in zip(found, other, strict=True):
        assert one.predicted is not None
        assert h20.predicted is not None
        assert 0.5 < one.predicted / h20.predicted < 2.0


def test_a_row_may_have_an_update_and_no_recovery() -> None:
    metrics = {"update_broadcast_s": 6.22, "bucket_broadcast_gib": 2.67}
    (one,) = updates(PublishedRow({**shipped(KIMI).fields, "metrics": metrics}, {}))
    assert one.id.endswith("[update]")
    assert one.status == "predicted"


def by_label(found: tuple[RowResult, ...]) -> dict[str, float]:
    return {one.id.partition("[")[2].rstrip("]"): one.predicted or 0.0 for one in found}


def test_bubbles_of_zero_bubble_orders_fall_with_micro_batches_and_with_h2() -> None:
    found = by_label(bubbles(shipped("zerobubble-14.6b-bubble-handcrafted")))
    assert len(found) == 6
    for order in ("ZB_H1", "ZB_H2"):
        few, more, many = (found[f"{order}, {n} micro-batches"] for n in (48, 64, 128))
        assert few > more > many
    for count in (48, 64, 128):
        assert found[f"ZB_H2, {count} micro-batches"] < found[f"ZB_H1, {count} micro-batches"]


@pytest.mark.slow
def test_bubbles_of_zb_h1_on_the_larger_models_are_met_within_a_third() -> None:
    """Those of ZB-H2 are what is left of (p - 1)(F + B - 3 W), and so of small differences."""
    for name in ("14.6b", "28.3b"):
        for one in bubbles(shipped(f"zerobubble-{name}-bubble-handcrafted")):
            assert "ZB_H2" in one.id or abs(one.error or 1.0) < 1 / 3, one.id


def test_formulas_are_no_numbers() -> None:
    (one,) = answer(shipped("dualpipe-bubble-formulas"))
    assert one.status == "not_expressible"
    assert refusal(one.reason) == "input"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kimi-k2-report-pretrain", "untold"),
        ("deepseek-v3-report-system-facts", "input"),
        ("gpu-tdp", "input"),
        ("kimi-k15-switch", "untold"),
        ("laminar-speedup", "untold"),
        ("perplexity-k2-1.3s", "beyond"),
        ("llama3.1-gpu-hours", "untold"),
        ("megatron-lm-readme-strong-177b", "untold"),
        ("maxtext-kimi-k2-tpu7x", "untold"),
        ("automodel-nemotron-v3-ultra-550b-26.04-128xh100-gbs256", "untold"),
    ],
)
def test_a_refusal_says_whether_its_source_leaves_out_a_fact(name: str, why: str) -> None:
    (one,) = answer(shipped(name))
    assert one.predicted is None
    assert refusal(one.reason) == why


def test_a_node_draws_what_its_gpus_and_the_rest_do() -> None:
    """76 % of 10.2 kW measured; ours by hand: eight GPUs at 0.9 of the way from 145 to 700 W, and
    2.88 kW beside them."""
    (one,) = answer(shipped("h100-node-power-model"))
    assert one.measured == pytest.approx(7752)
    assert one.predicted == pytest.approx(8 * (145 + 0.9 * 555) + 2880, rel=0.01)


def test_the_baseline_of_gains_is_a_step() -> None:
    (one,) = answer(shipped("megascale-ablation-256"))
    assert one.metric == "step_seconds"
    assert abs(one.error or 1.0) < 0.05


def test_steps_of_a_growing_batch_sum_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of b sequences takes 1 s + b / 100; steps are counted one by one, each with the batch
    that its tokens have grown to, over 469 billion of 14.8 trillion tokens."""
    monkeypatch.setattr(other_rows, "_step_of", lambda _row, batch, _sequence: 1 + batch / 100)
    (one,) = answer(shipped("deepseek-v3-report-total-gpu-hours"))
    seconds, tokens, first, last = 0.0, 0.0, 3072, 15360
    while tokens < 469e9:
        batch = first + (last - first) * tokens / 469e9
        seconds += 1 + batch / 100
        tokens += batch * 4096
    seconds += (14.8e12 - tokens) / (last * 4096) * (1 + last / 100)
    assert one.predicted == pytest.approx(2048 * seconds, rel=1e-4)


@pytest.mark.slow
def test_a_run_whose_batch_grew_is_met() -> None:
    """DeepSeek-V3: 2.664 million GPU-hours of H800."""
    (one,) = answer(shipped("deepseek-v3-report-total-gpu-hours"))
    assert one.measured == pytest.approx(2.664e6 * 3600)
    assert abs(one.error or 1.0) < 0.1


def test_gpu_hours_per_token_are_a_step() -> None:
    """180,000 hours x 3,600 s / 2,048 GPUs / 1e12 tokens x 62.9 million tokens: 19.9 s."""
    (one,) = answer(shipped("deepseek-v3-report-180k-gpuh-per-ttoken"))
    assert one.metric == "step_seconds"
    assert one.measured == pytest.approx(19.9066, rel=1e-4)
    assert one.status == "predicted"


def test_muon_needs_half_of_adamws_states_and_a_little_for_the_tables() -> None:
    """1 of 2 moments of each matrix; embedding and head are AdamW's, 4 % of Moonlight."""
    (one,) = answer(shipped("moonlight-distributed-muon"))
    tables = 2 * 163840 * 2048 / 15.96e9
    assert one.predicted == pytest.approx(0.5 + tables / 2, abs=0.002)


@pytest.mark.parametrize("category", not_predicted()["categories"])
def test_what_nothing_predicts_says_why(category: str) -> None:
    (one,) = answer(row({}, gpu="H100", category=category))
    assert one.status == "not_expressible"
    assert one.reason == not_predicted()["categories"][category]


def test_an_unknown_category_is_refused() -> None:
    (one,) = answer(row({}, gpu="H100", category="weather"))
    assert "weather" in one.reason
