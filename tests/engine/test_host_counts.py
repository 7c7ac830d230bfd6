"""What the host of Megatron-Core 0.17.1 does for a layer of a mixture, counted by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from twin.arch.ops import Exchange, Op
from twin.engine import plan
from twin.engine.cost_model import CostModel
from twin.loading import load, load_part
from twin.spec.software import HostThreadSpec

ROUTING = {
    "apply_random_logits: clone, normal_": 2,
    "topk_routing_with_score_function: topk, softmax, its cast": 3,
    "topk_routing_with_score_function: zeros_like, scatter; zeros_like, int, scatter, bool": 6,
    "compute_routing_scores_for_aux_loss: softmax, topk": 2,
    "compute_routing_scores_for_aux_loss: zeros_like, int, scatter, bool": 4,
    "get_tokens_per_expert_and_token_count: sum": 1,
    "switch_load_balancing_loss_func: sum, product, sum, product": 4,
    "attach_and_log_load_balancing_loss: division, addition": 2,
    "_apply_global_aux_loss: addition": 1,
}
"""Operations of router.py and moe_utils.py, forward; a counter of calls saw 25 in the run."""
COUNTS = {
    "preprocess: sum over tokens, long": 2,
    "preprocess: sum by rank, slice made whole": 2,
    "preprocess: sums over experts, tensor ranks, both": 3,
}
"""Of token_dispatcher.py; the counter saw 7."""
FORWARD = {
    # te_linear: down to q and kv, out of attention, shared expert up and down
    "te_linear": 5,
    "te_layernorm_linear": 2,
    "te_norm": 3,
    "te_attention": 1,
    # te_grouped_expert: 24 experts of a rank, up and down
    "te_grouped": 2,
    "te_grouped_expert": 48,
    "fp8_cast": 3,
    "fp8_launch": 3,
    # jit: both residuals, activations of the shared expert and of experts
    "jit": 4,
    "matmul": 1,
    "sort": 2,
    "pointwise": 23,
    "reduction": 10,
    "triton": 9,
    # collective: counts, dispatch, weights, combine, the load-balancing loss
    "collective": 5,
    "all_to_all": 1,
    "copy_to_host": 4,
    "event": 7,
    "module": 21,
    "function": 15,
    "view": 37,
    "empty": 17,
    "python": 235,
}
BACKWARD = {
    "te_linear_backward": 5,
    "te_layernorm_linear_backward": 2,
    "te_norm_backward": 3,
    "te_attention_backward": 1,
    "te_grouped_backward": 2,
    "te_grouped_expert_backward": 48,
    # hook: 48 matrices of experts, 13 others
    "hook": 61,
    "jit_backward": 4,
    "matmul": 2,
    "node": 15,
    "pointwise": 4,
    "triton": 4,
    "collective": 3,
    "all_to_all": 1,
    "fp8_cast": 3,
    "fp8_launch": 3,
    "function_backward": 17,
    "empty": 6,
    "python": 6,
}


@pytest.fixture
def host() -> HostThreadSpec:
    found = load_part("software", "megatron-core").spec.host
    assert found is not None
    return found


def calls(counts: Mapping[str, float]) -> float:
    """Operations of PyTorch among the items."""
    return sum(counts.get(name, 0) for name in ("sort", "pointwise", "reduction"))


def test_routing_and_counts_are_the_operations_of_megatron_core(host: HostThreadSpec) -> None:
    assert calls(host.operations["router_scores"].forward) == sum(ROUTING.values())
    assert calls(host.operations["expert_counts"].forward) == sum(COUNTS.values())


def test_a_layer_of_kimi_k2_does_what_was_counted() -> None:
    found = plan(
        load("kimi-k2-256xh800", ["software=megatron-core", "parallel.dispatcher=alltoall"])
    )
    layers = [layer for chunk in found.chunks for layer in chunk.layers]
    layer = next(one for one in layers if any(item.name == "router" for item in one.items))
    host = CostModel.of(found).host
    forward, backward = (
        sum((done(host.software, item, back=back) for item in layer.items), Counter[str]())
        for back in (False, True)
    )
    assert forward == FORWARD
    assert backward == BACKWARD


def done(host: HostThreadSpec | None, item: Op | Exchange, *, back: bool) -> Counter[str]:
    """The items of an operation or exchange, forward or for its gradients."""
    assert host is not None
    if isinstance(item, Exchange):
        one = host.operations[item.name]
        if (item.backward if back else item.forward) is None:
            return Counter()
        return Counter({"collective": 1}) + Counter(one.backward if back else one.forward)
    works = (item.backward, item.weight) if back else (item.forward,)
    if not any(work.kernels for work in works):
        return Counter()
    one = host.operations.get(item.name) or host.operations[item.kind]
    whole, each = (one.backward, one.each_backward) if back else (one.forward, one.each_forward)
    product = item.forward.product
    times = 1 if product is None else product.groups
    return Counter(whole) + Counter({name: times * count for name, count in each.items()})


ONE_GPU = "scenarios/measured/h100-sxm-torch2.11/eager/dense-1b-2x4096.yaml"
SLOWER = 1.3
"""A core of an H100 server over the one that these were measured on."""
EAGER = {
    # us a layer of Transformers' Llama takes one core of a Zen 5 server, forward and backward;
    # nine gradients of 70 us go into buckets with their reduction
    "hf-eager": (709, 780),
    "deepspeed-zero3": (709 + 1450, 780 + 2100 - 9 * 70),
}


@pytest.mark.parametrize("software", EAGER)
def test_an_eager_layer_takes_the_host_what_was_measured(software: str) -> None:
    """Both passes together: the loops that seconds are of tell less of how these share it."""
    made = plan(load(ONE_GPU, [f"software={software}"]))
    host, layer = CostModel.of(made).host, made.chunks[0].layers[1]
    ops = [one for one in layer.items if isinstance(one, Op)]
    taken = sum(host.op(op, part) for op in ops for part in ("forward", "backward", "weight"))
    assert taken == pytest.approx(SLOWER * 1e-6 * sum(EAGER[software]), rel=0.1)


def test_the_gradient_of_a_frozen_weight_costs_the_host_nothing() -> None:
    """A product with a weight to train has two products backward, one for each gradient."""
    backward: list[float] = []
    for changes in ([], ["train.lora={rank: 8}"]):
        made = plan(load(ONE_GPU, changes))
        host = CostModel.of(made).host
        ops = {one.name: one for one in made.chunks[0].layers[1].items if isinstance(one, Op)}
        op = ops["attention_out"]
        backward.append(host.op(op, "backward") + host.op(op, "weight"))
    assert backward[1] == pytest.approx(backward[0] / 2)
