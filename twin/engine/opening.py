"""How a step opens: new weights that the last step's update left to gather.

With `overlap_param_gather` the all-gather of ZeRO-1 and 2 does not close a step but opens the next
one (Megatron-LM's flag of that name): chunk by chunk in the order of the first forwards, each of
which waits for its own. A step is then as long as any other in a run: the first one has nothing to
gather, which is left out.
"""

from __future__ import annotations

from twin.collectives.base import Traffic
from twin.engine.cost_model import CostModel
from twin.engine.program import DATA, Group, Step, Template
from twin.optimizers.base import dense_weights
from twin.planning.memory import PARAMETER_BYTES
from twin.planning.types import Plan


def opening(plan: Plan, costs: CostModel, stage: int) -> tuple[Template, tuple[int, ...]]:
    """The opening steps of a stage, and the chunk whose first forward waits for each."""
    parallel = plan.scenario.parallel
    if not parallel.overlap_param_gather or parallel.zero not in (1, 2):
        return (), ()
    steps: list[Step] = []
    chunks: list[int] = []
    for chunk in plan.chunks:
        if chunk.stage != stage:
            continue
        dense = dense_weights(chunk.weights)
        sizes: dict[Group, int] = {"data": dense, "expert_data": chunk.weights.expert}
        for group, size in sizes.items():
            if size == 0 or costs.placements[group].size == 1:
                continue
            flow, delay = costs.collective("all_gather", size * PARAMETER_BYTES, group)
            steps.append(_gather(flow, delay, group, costs))
            chunks.append(chunk.index)
    return tuple(steps), tuple(chunks)


def _gather(flow: Traffic, delay: int, group: Group, costs: CostModel) -> Step:
    sms = costs.calibration.collective_sms
    return Step("all_gather_weights", DATA, delay, (), flow, group, sms=sms)
