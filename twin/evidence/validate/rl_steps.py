"""Rows of reinforcement learning: seconds of an iteration, and of its phases where a row has them,
by the iteration simulator. No number of it was fitted or chosen on any of them.

What a row leaves out is its framework's recipe (`twin.evidence.validate.stacks`). An asynchronous
row is one step off with partial rollouts: engines begin more requests than an iteration trains on,
by the share of stale ones that the row allows, and go on with the rest under the next weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import erf, exp, log, sqrt
from typing import Final, Literal

from twin.evidence.validate.answer import RowResult, answering, blank
from twin.evidence.validate.scenario_parts import (
    cluster_of,
    gpu_of,
    model_changes,
    model_of,
    spec_of,
)
from twin.evidence.validate.stacks import NO_STACK, Recipe, Tree, over, recipe_of
from twin.evidence.validate.steps import scenario_of
from twin.evidence.validate.suite import PublishedRow, Unreadable, count, degree, number
from twin.evidence.validate.training import Expressed
from twin.kinds.iteration.plan import plan
from twin.kinds.iteration.simulate import simulate
from twin.loading import load_part
from twin.scenario import Scenario
from twin.spec.iteration import Mode

SECONDS: Final = "iteration_seconds"
PHASES: Final = {
    "rollout_seconds": ("gen_s", "rollout_s"),
    "score_seconds": ("old_logprob_s",),
    "train_seconds": ("update_actor_s",),
}
"""Metrics of phases, and what rows call them."""
ITERATIONS: Final = 10
"""That are played where requests go on from one to the next: lengths of those that are done have
settled by then."""

Kind = Literal["synchronous", "one step off", "asynchronous"]


@dataclass(frozen=True, slots=True)
class RowIteration:
    """One measured iteration of a row: its place among the answers, who takes turns with whom on
    how many GPUs, and the share of stale requests."""

    suffix: str
    mode: Mode
    engines: int
    """GPUs for rollouts, where they have GPUs of their own."""
    stale: float
    metric: str

    @property
    def kind(self) -> Kind:
        """What it is called."""
        if self.stale:
            return "asynchronous"
        return "one step off" if self.mode == "one_step_off" else "synchronous"


@answering(SECONDS, "")
def answers(row: PublishedRow, change: Tree | None = None) -> Iterator[RowResult]:
    """Seconds of every iteration that a row has; `change` goes over its recipe, to see what that is
    worth."""
    reason = row.fields.get("not_expressible")
    if reason is not None:
        raise Unreadable(str(reason))
    for iteration in iterations_of(row):
        yield from _answers(row, iteration, change or {})


def iterations_of(row: PublishedRow) -> tuple[RowIteration, ...]:
    """The iterations that a row measured. Raises `Unreadable` where there is none."""
    gpus, words = row.gpus, row.words
    if gpus is None:
        raise Unreadable("the row does not say on how many GPUs")
    if "colocate_step_s" in row.metrics:
        split = re.search(r"(\d+) train / (\d+) gen", words)
        if split is None:
            raise Unreadable("the row does not say how its GPUs are split")
        return (
            RowIteration("[colocate]", "colocated", 0, 0.0, "colocate_step_s"),
            RowIteration(
                "[one_step_off]", "one_step_off", int(split[2]), 0.0, "one_step_off_step_s"
            ),
        )
    if number(row.metrics, "step_s") is None:
        raise Unreadable("not told: seconds of an iteration")
    if "1-step off" in words:
        return (RowIteration("", "one_step_off", gpus // 2, 0.0, "step_s"),)
    split = re.search(r"(\d+):(\d+)", str(row.layout.get("split", "")))
    if split is None:
        return (RowIteration("", "colocated", 0, 0.0, "step_s"),)
    if "trigger_parameter_sync_step" in words:
        return (RowIteration("", "disaggregated", int(split[2]), 0.0, "step_s"),)
    stale = re.search(r"staleness (\d\.\d+)", words)
    return (
        RowIteration(
            "", "one_step_off", int(split[2]), float(stale[1]) if stale else 0.5, "step_s"
        ),
    )


def _answers(row: PublishedRow, asked: RowIteration, change: Tree) -> Iterator[RowResult]:
    recipe = recipe_of(row)
    if recipe is None:
        raise Unreadable("not told: lengths, batches and layouts, by no recipe of its source")
    recipe = recipe.model_copy(update=change)
    scenario = scenario_of(expressed(row, asked, recipe))
    predicted = mean_seconds(scenario)
    known = replace(
        blank(row, SECONDS),
        id=row.id + asked.suffix,
        stack=recipe.name,
        calibration=scenario.calibration.name,
        experts=scenario.model.moe is not None,
        assumed=(asked.kind, *recipe.assumed),
    )
    yield replace(known, predicted=predicted[SECONDS], measured=number(row.metrics, asked.metric))
    for metric, names in PHASES.items():
        # What trainers that run beside engines call generation is how long they wait for it.
        waits = metric == "rollout_seconds" and asked.mode == "one_step_off"
        measured = next((s for name in names if (s := number(row.metrics, name))), None)
        if measured is not None and not waits:
            yield replace(known, metric=metric, predicted=predicted[metric], measured=measured)


def mean_seconds(scenario: Scenario) -> dict[str, float]:
    """Mean seconds of the settled iterations of a scenario and of their phases, by metric."""
    rounds = simulate(plan(scenario)).rounds
    lengths = {SECONDS: [one.length_ns for one in rounds]} | {
        f"{phase}_seconds": [one.parts_ns[phase] for one in rounds]
        for phase in ("rollout", "score", "train")
    }
    return {metric: sum(values) / 1e9 / len(rounds) for metric, values in lengths.items()}


def expressed(row: PublishedRow, asked: RowIteration, recipe: Recipe) -> Expressed:
    """The scenario of an iteration of a row. Raises `Unreadable` where there is none."""
    model = model_of(row)
    if not isinstance(model, str):
        raise Unreadable("the catalog has no such model")
    tree, changed = _cluster(row, asked)
    longest, written = _written(row, recipe)
    whole = recipe.prompt + longest
    tokens = max(recipe.micro_tokens or whole, whole)
    parallel = _parallel(row, recipe)
    part = 2 * parallel["context"] * parallel["tensor"]
    sequence = -(-tokens // part) * part
    gpu = gpu_of(row)
    made: Tree = {
        "schema": 1,
        "name": row.id + asked.suffix,
        "model": model,
        "cluster": tree,
        "parallel": parallel,
        "train": {
            "tokens": "100T",
            "sequence": f"{sequence}tok",
            "global_batch": f"{48 * (row.gpus or 1) * sequence}tok",
            "precision": row.precision,
        },
        "calibration": _profile(recipe, gpu),
        "software": recipe.part or None,
        "rl": _rl(row, asked, recipe, written),
    }
    habits = over({"memory": {}}, recipe.scenario)
    parts = {"cluster": changed, "model": model_changes(row)}
    edits = {name: part for name, part in parts.items() if part}
    return Expressed(over(habits, made), edits, NO_STACK, ())


def _profile(recipe: Recipe, gpu: str) -> str:
    """The calibration of the trainer's kernels: its recipe's, its software's, or the GPU's own."""
    own = load_part("software", recipe.part).spec.calibrations if recipe.part else {}
    return recipe.profiles.get(gpu) or own.get(gpu) or load_part("gpus", gpu).spec.calibration


def _cluster(row: PublishedRow, asked: RowIteration) -> tuple[Tree, Tree]:
    """The cluster, in nodes that no split cuts; and what is changed in its parts."""
    place = cluster_of(row)
    section, changed = dict(place.section), dict(place.over)
    if not asked.engines:
        return section, changed
    gpus = row.gpus or 0
    each = gpus // section["nodes"]
    if asked.engines % each:
        each = asked.engines
        section["nodes"] = gpus // each
        changed = over(changed, {"node": {"gpus": each}})
    return section, changed


def _parallel(row: PublishedRow, recipe: Recipe) -> Tree:
    layout = row.layout
    names = ("tensor", "context", "expert", "pipeline")
    own: Tree = {**dict.fromkeys(names, 1), **recipe.scenario.get("parallel", {})}
    said = _degrees(str(layout.get("training_tp_cp_ep_pp_vpp", "")))
    # Of a layout in five places: TP, CP, EP, PP, VPP; longer ones are all ones.
    if len(said) == len(names) and max(said) > 1:
        own |= dict(zip(names, said, strict=True))
    for name, key in (("tensor", "tp"), ("expert", "ep"), ("pipeline", "pp")):
        if key in layout:
            own[name] = degree(layout, key)
    spec = spec_of(row.model)
    own["sequence_parallel"] = own["tensor"] > 1
    if spec.moe is None:
        own.pop("expert")
        own.pop("dispatcher", None)
    split = recipe.split(spec.layers, own["pipeline"])
    return own | ({"layers": split} if split else {})


def _degrees(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"\d+", text)]


def _written(row: PublishedRow, recipe: Recipe) -> tuple[int, Tree]:
    """Tokens that are written at most, and how they are spread."""
    most = count(row.metrics, "max_seq_len")
    longest = most - recipe.prompt if most else recipe.longest
    names = ("mean_seq_len", "mean_response_len")
    mean = next((n for name in names if (n := number(row.metrics, name))), recipe.mean)
    if longest is None or mean is None:
        raise Unreadable("nothing tells how long its answers are")
    spread = {"kind": "log_normal", "mean": uncut(mean, recipe.sigma, longest)}
    return longest, {**spread, "sigma": recipe.sigma, "longest": float(longest)}


def uncut(mean: float, sigma: float, longest: float) -> float:
    """The mean of a log-normal whose mean is `mean` once it is cut at `longest`: by bisection of
    E[min(X, L)] = m Phi((ln(L/m) - s^2/2) / s) + L Phi(-(ln(L/m) + s^2/2) / s). Close to `longest`
    there is none: the largest that is tried."""

    def normal(x: float) -> float:
        return (1.0 + erf(x / sqrt(2.0))) / 2.0

    def cut(m: float) -> float:
        far = log(longest / m)
        below = m * normal((far - sigma**2 / 2) / sigma)
        return below + longest * normal(-(far + sigma**2 / 2) / sigma)

    low, high = log(mean), log(mean) + 12.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if cut(exp(middle)) < mean else (low, middle)
    return round(exp(low), 3)


def _rl(row: PublishedRow, asked: RowIteration, recipe: Recipe, written: Tree) -> Tree:
    requests = count(row.metrics, "rollout_batch") or recipe.requests
    batch = count(row.metrics, "train_batch") or recipe.train_batch
    ranks = _degrees(str(row.layout.get("generation_tp_pp", "")))
    tensor = ranks[0] if ranks else recipe.generation
    if requests is None or batch is None or tensor is None:
        raise Unreadable("the row does not say requests, batch and engines")
    begun = round(requests / recipe.kept * (1.0 + asked.stale))
    colocated = asked.mode == "colocated"
    weights = {"precision": row.precision, "replica": {"gpus": tensor}}
    each = (row.gpus or 0) // _nodes(row, asked)
    rollout: Tree = {
        "engine": {
            "gpus": tensor,
            "tensor": tensor,
            "precision": row.precision,
            "experts": "cut",
            "eager": recipe.eager,
            "memory": recipe.memory,
            "software": recipe.serving,
            "two_batches": False,
            "batch": recipe.batch,
            "chunk": "8192tok",
        },
        "requests": begun,
        "prompt": {"kind": "constant", "each": float(recipe.prompt)},
        "written": written,
        "iterations": ITERATIONS if asked.stale else 1,
    }
    if asked.stale:
        rollout["partial"] = {"finished": 1.0 / (1.0 + asked.stale)}
    iteration: Tree = {
        "mode": asked.mode,
        "optimizer_steps": max(1, requests // batch),
        # What engines wrote is taken as it is where training does not wait for them.
        "scores": 0 if asked.stale or asked.mode == "disaggregated" else recipe.scores,
        "swap_reference": recipe.swap_reference,
        "balance": recipe.balance,
        "stream": recipe.stream if asked.mode == "disaggregated" else 1,
        "kept": recipe.kept,
        "prepare": recipe.prepare,
        "backup": recipe.backup,
        "update": {**weights, "free_memory": "8GiB", **recipe.update},
    }
    if recipe.unload is not None:
        iteration["unload"] = recipe.unload
    if not colocated:
        iteration["rollout_nodes"] = asked.engines // each
    return {"rollout": rollout, "iteration": iteration}


def _nodes(row: PublishedRow, asked: RowIteration) -> int:
    return int(_cluster(row, asked)[0]["nodes"])
