"""Kinds x verbs x doors: each gets an answer, or the refusal that the kind gives, with its reason.
A kind that a test adds is a folder, and nothing else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twin
import twin.kinds
from tests.cli.conftest import SMALL
from tests.command import Command
from tests.kinds.iteration.iterations import NAME as ITERATION
from tests.kinds.iteration.iterations import SMALL as SMALL_ITERATION
from tests.kinds.phases.conftest import TWO
from tests.kinds.weight_update.updates import QUICK
from tests.kinds.weight_update.updates import SMALL as UPDATE
from twin.answers import ask, check
from twin.kinds.base import VERBS, Kind, Verb, kind_of, kinds
from twin.loading import load

HEAD = (
    "version",
    "kind",
    "name",
    "hash",
    "fits",
    "verdict",
    "kpis",
    "intervals",
    "calibrated",
    "expectations",
    "warnings",
    "scenario",
    "provenance",
)
ROLLOUTS = ("rl.rollout.requests=320", "rl.rollout.nodes=4", "rl.rollout.iterations=2")
NAMED: dict[str, tuple[str, tuple[str, ...]]] = {
    "step": ("plain.yaml", ()),
    "phases": ("whole.yaml", ()),
    "rollouts": ("kimi-k2-rollout-256xh800", ROLLOUTS),
    "rl_iteration": (ITERATION, SMALL_ITERATION),
    "weight_update": (UPDATE, QUICK),
}
"""A small scenario of each kind, under edits."""
AXES = {
    "step": "parallel.pipeline=1,2",
    "phases": "cluster.nodes=2",
    "rollouts": "rl.rollout.nodes=4",
    "rl_iteration": "cluster.nodes=4",
    "weight_update": "weight_update.bucket=256MiB,512MiB",
}


def words(kind: Kind, verb: Verb) -> list[str]:
    """What a planner types."""
    name, edits = NAMED[kind.name]
    typed: dict[Verb, list[str]] = {
        "compare": ["compare", name, name],
        "attribution": ["compare", name, name],
        "sweep": ["sweep", name, "--grid", AXES[kind.name], "--jobs", "1"],
        "recommend": ["recommend", name, "--fixed-layout", "--jobs", "1"],
        "improve": ["improve", name, "--jobs", "1"],
        "explain": ["explain", name, "step_seconds"],
        "export": ["export", name, "--format", "csv", "-o", "tables.csv"],
        "seal": ["run", name, "--seal"],
    }
    sets = (f"--set={edit}" for edit in edits)
    return [*typed.get(verb, [verb, name]), *sets, "--json"]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWIN_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("TWIN_SEALS", str(tmp_path / "seals"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.yaml").write_text(SMALL)
    (tmp_path / "whole.yaml").write_text(TWO)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        pytest.param(
            kind,
            verb,
            id=f"{kind.name}-{verb}",
            # Searches take ten seconds and more.
            marks=[pytest.mark.slow]
            * (verb in ("recommend", "improve") and verb not in kind.refusals),
        )
        for kind in kinds()
        for verb in VERBS
    ],
)
def test_the_command_line_answers_every_verb_or_says_why_not(
    twin_command: Command, kind: Kind, verb: Verb
) -> None:
    done = twin_command(*words(kind, verb))
    if verb == "attribution":
        split = json.loads(done.out).get("attribution")
        assert (split is None) == (verb in kind.refusals)
    elif (why := kind.refusals.get(verb)) is not None:
        assert done.code == 2
        assert why in done.err
    else:
        assert done.code in (0, 4), done.err
        assert json.loads(done.out)["version"]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.name)
def test_python_and_the_command_line_give_one_answer_with_one_head(kind: Kind) -> None:
    name, edits = NAMED[kind.name]
    scenario = load(name, list(edits))
    assert kind_of(scenario) is kind
    plan = twin.plan(scenario)
    report = twin.report(plan, twin.simulate(twin.lower(plan)))
    answer = ask(scenario, cache=False).report
    document = report.to_json()
    assert set(HEAD) <= set(document)
    assert document["kind"] == kind.name
    assert set(document["kpis"]) >= {kpi.key for kpi in kind.kpis} & set(document["kpis"])
    assert set(document["intervals"]) <= set(document["kpis"])
    assert document["kpis"] == answer.to_json()["kpis"]
    assert kind.length in document["kpis"]
    comparison = twin.compare([report, answer])
    assert [delta.kpis[kind.length].delta for delta in comparison.deltas] == [0.0]
    assert check(scenario).to_json()["fits"] == document["fits"]


TOY = '''
"""A kind that waits."""

from typing import Any

from twin.kinds.base import ALONE, Check, Kind, Tools
from twin.loading import scenario_hash
from twin.reports.head import Head, provenance
from twin.reports.summary import catalog_use, resolved
from twin.reports.table import lookup
from twin.scenario import Root
from twin.spec.base import Spec
from twin.spec.kpis import Kpi


class WaitSpec(Spec):
    """How long."""

    seconds: int


class WaitScenario(Root):
    """Waiting."""

    section = "wait"
    wait: WaitSpec


class WaitReport(Head):
    """How long it took."""

    kind = "wait"

    @property
    def verdict(self) -> str:
        return f"Waits for {self.kpis['wait_seconds']:g} s."

    def body(self) -> dict[str, Any]:
        return {}


class Wait(Kind):
    name = "wait"
    title = "waiting"
    length = "wait_seconds"
    kpis = (Kpi("wait_seconds", "Wait", "s", "lower"),)
    root = WaitScenario
    subject = "the wait is"
    parts = "parts"
    refusals = {"seal": "nobody bets on it", "attribution": "it has no parts"}

    def recognises(self, scenario: Root) -> bool:
        return isinstance(scenario, WaitScenario)

    def plan(self, scenario: WaitScenario, tools: Tools = ALONE) -> WaitScenario:
        return scenario

    def simulate(self, program: WaitScenario, tools: Tools = ALONE) -> int:
        return program.wait.seconds

    def report(self, plan: WaitScenario, trace: int, run: Any) -> WaitReport:
        return WaitReport(
            name=plan.name,
            scenario=resolved(plan),
            hash=scenario_hash(plan),
            fits=True,
            kpis={"wait_seconds": float(trace)},
            intervals={"wait_seconds": None},
            warnings=(),
            expectations=(),
            provenance=provenance("none", "exact", 0, catalog_use(plan.ledger), run),
        )

    def check(self, scenario: WaitScenario, tools: Tools = ALONE) -> Check:
        return Check("wait", scenario, True, (), (), ("Fits.",), ())

    def tables(self, run: Any) -> Any:
        return [lookup({"Wait": f"{run.report.kpis['wait_seconds']:g} s"}, "Key figures")]

    def part_seconds(self, report: WaitReport) -> dict[str, float]:
        return {"waiting": report.kpis["wait_seconds"] or 0.0}


KIND = Wait()
'''
WAIT = """\
schema: 1
name: a wait
model: gpt-22b
cluster: {node: a100-80gb-8gpu-8x200g, nodes: 1, fabric: rail-fat-tree-200g}
wait: {seconds: 3}
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that holds one more kind, and a scenario of it."""
    folder = tmp_path / "more" / "wait"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(TOY)
    monkeypatch.setattr(twin.kinds, "__path__", [*twin.kinds.__path__, str(tmp_path / "more")])
    kinds.cache_clear()
    (tmp_path / "wait.yaml").write_text(WAIT)
    yield tmp_path
    kinds.cache_clear()
    for name in [name for name in sys.modules if name.startswith("twin.kinds.wait")]:
        del sys.modules[name]


@pytest.mark.usefixtures("toy")
def test_a_kind_that_is_added_is_one_folder(twin_command: Command) -> None:
    done = twin_command("run", "wait.yaml")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0] == "Waits for 3 s."
    assert "Wait  3 s" in done.out
    assert json.loads(twin_command("run", "wait.yaml", "--json").out)["kpis"]["wait_seconds"] == 3.0
    assert twin_command("check", "wait.yaml").out.startswith("Fits.")
    sets = ("--set", "wait.seconds=4")
    assert "Waits for 4 s." in twin_command("run", "wait.yaml", *sets).out
    compared = twin_command("compare", "wait.yaml", "wait.yaml", "--fail-if", "wait_seconds > +2%")
    assert compared.code == 2  # limits are read by the figures of all kinds that ship
    assert twin_command("compare", "wait.yaml", "wait.yaml").code == 0
    refused = twin_command("run", "wait.yaml", "--seal")
    assert (refused.code, "nobody bets on it" in refused.err) == (2, True)
