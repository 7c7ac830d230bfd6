"""From a planner's question to a scenario and the clusters to search: what nobody has written yet
is chosen here, and said.

A question names a model, a GPU, the tokens, and what it is asked for: days, dollars, or both. The
scenario gets the usual rest: AdamW in bf16, the batch of `usual_batch`, a layout that the search
replaces. Sizes of the cluster follow from the deadline and from how far published runs come of
their GPUs' peak.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, log2
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from twin.answers.executors import PoolChoice
from twin.answers.nearest import document, replaced, written
from twin.arch.count import flop_per_token
from twin.errors import Problem, TwinError, UsageError
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import (
    MOST_PLAYED,
    PATIENCE,
    Recommendation,
    SearchRequest,
    Told,
)
from twin.explore.search.space import (
    DAY,
    Goal,
    field_problem,
    goal_of,
    nodes_of,
    quantity,
    space,
)
from twin.explore.sweep.points import points_folder
from twin.loading import catalog_parts, load, load_part
from twin.loading.files import table
from twin.loading.tree import hint
from twin.reports.interval import AKIN, shipped
from twin.reports.table import count, digits, ranged
from twin.scenario import Scenario
from twin.spec.cluster import MOST_GPUS, NodeSpec

_T = TypeVar("_T")

FABRICS: Final[Mapping[str, str]] = table(__name__, "FABRICS")
"""The usual fabric of a node, by the rate of its NICs in Gb/s; of a rack, by its name."""
SEQUENCE: Final = 4096
"""Tokens of a sequence where nobody says: of most pre-training in `scenarios/published`."""
USUAL_GPUS: Final = ("256", "512", "1024")
"""Sizes that are searched where neither a size nor a deadline says any."""
MOST_SIZES: Final = 6
"""Sizes of a first search: OURS, half a minute on two cores."""
QUANTILES: Final = (0.1, 0.5, 0.9)
"""Of published runs: slow, usual and fast ones."""
_PLAIN: Final = re.compile(r"[\w.+-]+( [\w.+-]+)*")
"""What YAML takes as it is."""


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What a planner knows before there is a plan, as typed: quantities have units. An empty field
    is not said."""

    model: str
    """a name of the catalog, or the fields of a model as YAML on one line"""
    gpu: str
    """a GPU or a node of the catalog"""
    tokens: str
    target: str = ""
    """a time"""
    budget: str = ""
    """dollars; needs a price"""
    gpus: str = ""
    """sizes of the cluster, as `--gpus` takes them; empty: as many as it takes"""
    price: str = ""
    """of a GPU-hour; empty: unknown"""
    sequence: str = ""
    """tokens of a sequence; empty: `SEQUENCE`"""
    batch: str = ""
    """sequences or tokens of a step; empty: `usual_batch`"""
    stack: str = ""
    """software; empty: what the loader takes"""
    patience: str = ""
    """time after which the search closes no more; empty: `PATIENCE`"""
    name: str = ""
    """of the model, where its fields are given"""
    source: str = ""
    """the file that its fields came from"""

    @property
    def title(self) -> str:
        """What is planned: `kimi-k2 on h800`."""
        return f"{self.name or self.model} on {self.gpu}"

    @property
    def command(self) -> str:
        """The command that asks the same."""
        options = {
            "--gpu": self.gpu,
            "--tokens": self.tokens,
            "--gpus": self.gpus,
            "--target": self.target,
            "--budget": self.budget,
            "--price": self.price,
            "--tokens-each": self.sequence,
            "--batch": self.batch,
            "--stack": self.stack,
            "--patience": self.patience,
        }
        said = [word for option, text in options.items() if text for word in (option, text)]
        return shlex.join(["twin", "new", self.source or self.model, *said])


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A question that was understood: what a search takes."""

    question: PlanQuestion
    scenario: Scenario
    goal: Goal
    nodes: tuple[int, ...]
    seconds: float

    @property
    def words(self) -> str:
        """The question in words."""
        tokens = count(self.scenario.train.tokens)
        size = f" on {self.question.gpus} GPUs" if self.question.gpus else ""
        return f"{self.question.title}, {tokens} tokens{size}: {self.goal.words}?"


@dataclass(frozen=True, slots=True)
class PublishedMfu:
    """How far published runs come of their GPUs' dense BF16 peak, of families on GPUs as fast as
    this, with experts or without: a slow one, the median, a fast one."""

    slow: float
    usual: float
    fast: float
    families: int

    def gpu_days(self, scenario: Scenario) -> tuple[float, float, float]:
        """GPU-days of a run at each of them, the fewest first."""
        work = run_flop(scenario) / scenario.cluster.node.gpu.bf16_dense / DAY
        return work / self.fast, work / self.usual, work / self.slow


def understood(asked: PlanQuestion) -> PlanRequest:
    """What a question asks for. Raises `UsageError` with all that cannot be read; the path of each
    problem is a field of the question."""
    problems: list[Problem] = []

    def read(what: Callable[[], _T]) -> _T | None:
        try:
            return what()
        except TwinError as error:
            problems.extend(error.problems)
            return None

    goal = read(lambda: goal_of(asked.target, asked.budget))
    seconds = read(lambda: quantity("patience", asked.patience or f"{PATIENCE}s", "seconds"))
    if asked.budget and not asked.price:
        problems.append(Problem("TW053", "price", "a budget needs a price", "such as `2USD`"))
    scenario = read(lambda: scenario_of(asked))
    if scenario is None or goal is None or seconds is None or problems:
        raise UsageError(problems)
    nodes = read(lambda: sizes_of(asked, scenario, goal))
    if nodes is None:
        raise UsageError([replace(one, path="gpus", origin=None) for one in problems])
    return PlanRequest(asked, scenario, goal, nodes, seconds)


def answered(asked: PlanRequest, pool: PoolChoice, told: Told | None) -> Recommendation:
    """What a search for it finds. Raises `UsageError` for what no layout can run; the path of each
    problem is a field of the question."""
    whole, folder = space(asked.scenario, asked.nodes), points_folder()
    with _at_fields(asked.question):
        return recommend(
            SearchRequest(whole, asked.goal, pool, folder, MOST_PLAYED, told, asked.seconds)
        )


def scenario_of(asked: PlanQuestion) -> Scenario:
    """The scenario of a question. Raises `UsageError` for what cannot be read; the path of each
    problem is a field of the question."""
    with _at_fields(asked):
        drafted = _loaded(_lines(asked))
        return drafted if asked.batch else _loaded(_lines(asked, usual_batch(drafted)))


@contextmanager
def _at_fields(asked: PlanQuestion) -> Generator[None]:
    """Problems at the fields of the question whose lines they are at."""
    try:
        yield
    except TwinError as error:
        raise UsageError(_of_field(one, asked) for one in error.problems) from None


def _loaded(lines: Mapping[str, str]) -> Scenario:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        file.write_text("\n".join(lines.values()) + "\n", encoding="utf-8")
        return load(file)


def _of_field(problem: Problem, asked: PlanQuestion) -> Problem:
    """The problem at the field of the question whose line it is at, or came in by."""
    origin = problem.origin
    while origin is not None and Path(origin.file).name != _FILE:
        origin = origin.via
    if origin is None or not origin.line:
        return replace(problem, origin=None)
    field = [*_lines(asked)][origin.line - 1]
    text = str(getattr(asked, field, ""))
    return field_problem(problem.code, field, text, problem.message, problem.hint)


_FILE: Final = "new.yaml"


def _lines(asked: PlanQuestion, batch: int | None = None) -> dict[str, str]:
    """The lines of a scenario on one node, each under the field of the question that it says."""
    node = node_of(asked.gpu)
    sequences = f"{batch or 1024}seq"
    model = asked.model if asked.model.startswith("{") else _scalar(asked.model)
    lines = {
        "schema": "schema: 1",
        "name": f"name: {_scalar(asked.title)}",
        "model": f"model: {model}",
        "gpu": f"cluster: {{node: {node}, nodes: 1, fabric: {fabric_of(node)}}}",
        "parallel": "parallel: {pipeline: 1, tensor: 1, zero: 1, micro_batch: 1, schedule: 1f1b}",
        "train": "train:",
        "tokens": f"  tokens: {_scalar(asked.tokens)}",
        "batch": f"  global_batch: {_scalar(asked.batch or sequences)}",
        "sequence": f"  sequence: {_scalar(asked.sequence or f'{SEQUENCE}tok')}",
        "optimizer": "  optimizer: adamw",
        "precision": "  precision: bf16",
    }
    if asked.price:
        lines["price"] = f"cost: {{gpu_hour: {_scalar(asked.price)}}}"
    if asked.stack:
        lines["stack"] = f"software: {_scalar(asked.stack)}"
    return lines


def _scalar(text: str) -> str:
    """The text as YAML takes it, whatever it holds."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def plan_text(asked: PlanRequest, overrides: Mapping[str, Any]) -> str:
    """A plan for a question as the YAML of a scenario, short enough to read and to edit.
    `overrides` are those of a layout."""
    scenario = replaced(document(asked.scenario), overrides)
    made, cluster = document(scenario), scenario.cluster
    lines = _lines(asked.question, scenario.train.global_batch_sequences)
    lines["gpu"] = (
        f"cluster: {{node: {cluster.node.name}, nodes: {cluster.nodes}, "
        f"fabric: {cluster.fabric.name}}}"
    )
    lines["parallel"] = f"parallel: {written(made['parallel'])}"
    lines["memory"] = f"memory: {written(made['memory'])}"
    return "\n".join(lines.values()) + "\n"


@cache
def known_gpus() -> tuple[str, ...]:
    """The GPUs of the catalog's nodes."""
    return tuple(sorted({_gpu_of(one) for one in catalog_parts("nodes")}))


def node_of(gpu: str) -> str:
    """The usual node of a GPU: that of the shortest name that holds it; or the node itself. Raises
    `UsageError` with the nearest names where there is none."""
    nodes = sorted(catalog_parts("nodes"), key=len)
    wanted = gpu.casefold()
    own = [one for one in nodes if wanted in (one.casefold(), _gpu_of(one).casefold())]
    own += [one for one in nodes if one.casefold().startswith(f"{wanted}-")]
    if own:
        return own[0]
    raise UsageError(
        [Problem("TW434", "gpu", f"no node has the GPU `{gpu}`", hint(gpu, known_gpus()))]
    )


@cache
def _gpu_of(node: str) -> str:
    spec = load_part("nodes", node).spec
    assert isinstance(spec, NodeSpec)
    return spec.gpu.name


def fabric_of(node: str) -> str:
    """The usual fabric of a node."""
    spec = load_part("nodes", node).spec
    assert isinstance(spec, NodeSpec)
    rate = f"{8 * spec.nic.bandwidth / 1e9:.0f}"
    return FABRICS.get(node) or FABRICS.get(rate) or FABRICS["400"]


def usual_batch(scenario: Scenario) -> int:
    """Sequences of a step: B = 0.2920 C^0.3271 tokens of a run of C FLOP (DeepSeek LLM,
    arXiv:2401.02954, equation 1; found up to 2e19 FLOP and used up to 8e23), rounded to 2^n or
    3 x 2^n sequences, which most clusters divide. It breaks far beyond 1e25 FLOP."""
    tokens = 0.2920 * run_flop(scenario) ** 0.3271
    sequences = max(1.0, tokens / scenario.train.sequence)
    power = int(log2(sequences))
    near = (2**power, 3 * 2 ** (power - 1) if power else 1, 2 ** (power + 1))
    return min(near, key=lambda one: abs(log2(one / sequences)))


def run_flop(scenario: Scenario) -> float:
    """Model FLOP of the whole run."""
    train = scenario.train
    return flop_per_token(scenario.model, train.sequence) * train.tokens


def published_mfu(scenario: Scenario) -> PublishedMfu | None:
    """What published runs on GPUs of this generation reach, one median for each family; None where
    no published run is like it."""
    gpu, experts = scenario.cluster.node.gpu.bf16_dense, scenario.model.moe is not None
    families: dict[str, list[float]] = {}
    for one in shipped().residuals:
        akin = max(one.at.peak / gpu, gpu / one.at.peak) < AKIN
        if one.metric == "step_seconds" and one.flop and akin and one.at.experts == experts:
            share = one.flop / one.measured / one.at.peak
            families.setdefault(one.family, []).append(share)
    if not families:
        return None
    medians = [float(np.median(shares)) for shares in families.values()]
    slow, usual, fast = np.quantile(medians, QUANTILES)
    return PublishedMfu(float(slow), float(usual), float(fast), len(medians))


def sizes_of(asked: PlanQuestion, scenario: Scenario, goal: Goal) -> tuple[int, ...]:
    """Numbers of nodes to search: those that are named; else 2^n and 3 x 2^n nodes around what
    published runs of such models would take within the deadline."""
    if asked.gpus:
        return nodes_of(scenario, asked.gpus)
    per_node = scenario.cluster.node.gpus
    known = published_mfu(scenario)
    if goal.days is None or known is None:
        return nodes_of(scenario, ",".join(_whole(int(one), per_node) for one in USUAL_GPUS))
    fewest, usual, most = (one / goal.days / per_node for one in known.gpu_days(scenario))
    found = [one for one in _round_sizes(MOST_GPUS // per_node) if fewest <= one <= 2 * most]
    if not found:
        found = [min(MOST_GPUS // per_node, ceil(most))]
    nearest = sorted(found, key=lambda one: abs(log2(one / usual)))
    return tuple(sorted(nearest[:MOST_SIZES]))


def _whole(gpus: int, per_node: int) -> str:
    return str(ceil(gpus / per_node) * per_node)


def _round_sizes(most: int) -> Sequence[int]:
    """2^n and 3 x 2^n, in order."""
    powers = [1 << bit for bit in range(most.bit_length())]
    return sorted(one for one in {*powers, *(3 * one for one in powers)} if one <= most)


def first_answer(asked: PlanRequest) -> list[str]:
    """What can be said before anything is simulated, in sentences: the answer first."""
    scenario, goal, known = asked.scenario, asked.goal, published_mfu(asked.scenario)
    work = f"The run is {run_flop(scenario):.3g} FLOP of the model.".replace("e+", "e")
    if known is None:
        return ["No published run is of such a model on such GPUs.", work]
    fewest, usual, most = known.gpu_days(scenario)
    said: list[str] = []
    if goal.days is not None and not asked.question.gpus:
        low, near, high = (digits(one / goal.days) for one in (fewest, usual, most))
        said.append(f"About {near} GPUs ({low} to {high}) do it in {goal.days:g} days.")
    else:
        nodes = asked.nodes
        for one in dict.fromkeys((nodes[0], nodes[len(nodes) // 2], nodes[-1])):
            gpus = one * scenario.cluster.node.gpus
            days = ranged(usual / gpus, (fewest / gpus, most / gpus), "d")
            said.append(f"{gpus:,} GPUs take about {days}.")
    price = scenario.cost.gpu_hour if scenario.cost else None
    if price:
        low, near, high = (24 * price * one for one in (fewest, usual, most))
        paid = ranged(near, (low, high), "USD")
        said.append(f"The run costs about {paid} at {price:.2f} USD per GPU-hour.")
    slow, median, fast = (f"{100 * one:.0f}" for one in (known.slow, known.usual, known.fast))
    said.append(
        f"So {known.families} families of published runs of such models on such GPUs suggest: they "
        f"reach {slow} to {fast} % of the peak, in the median {median} %."
    )
    return [*said, work]
