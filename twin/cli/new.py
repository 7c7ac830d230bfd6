"""`twin new`: from a question to a plan, without a scenario file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from twin.cli import search_tables as say
from twin.cli.answer import search_progress
from twin.cli.output import Output, require_writable, write_text
from twin.cli.recommend import goal_of, quantity, unanswered, winning
from twin.cli.sweep import pool_choice
from twin.explore.search.decision_page import Decision, page
from twin.explore.search.new_plan import (
    PlanQuestion,
    first_answer,
    scenario_of,
    scenario_text,
    sizes_of,
)
from twin.explore.search.recommend import recommend
from twin.explore.search.recommendation import MOST_PLAYED, PATIENCE, SearchRequest
from twin.explore.search.space import space
from twin.explore.sweep.points import points_folder
from twin.interop.importing.hf_config import read_hf_config
from twin.loading import resolve
from twin.loading.load import load

VERSION = 1
"""Version of the JSON document."""


def new(  # noqa: PLR0913  one parameter per option of the command line
    *,
    model: str,
    gpu: str,
    tokens: str,
    gpus: str | None,
    target: str | None,
    budget: str | None,
    price: str | None,
    sequence: str | None,
    batch: str | None,
    stack: str | None,
    patience: str | None,
    path: Path | None,
    decision: Path | None,
    force: bool,
    jobs: int | None,
    output: Output,
) -> int | None:
    """A plan for a model, a GPU and a number of tokens."""
    for file in (path, decision):
        if file is not None:
            require_writable(file, force=force)
    goal = goal_of(target, budget, fastest=False)
    if goal.usd is not None and price is None:
        raise typer.BadParameter("a budget needs a price: --price 2USD", param_hint="--budget")
    asked = PlanQuestion(
        model=_model(model),
        gpu=gpu,
        tokens=tokens,
        days=goal.days,
        usd=goal.usd,
        gpus=gpus or "",
        price=price or "",
        sequence=sequence or "",
        batch=batch or "",
        software=stack or "",
    )
    scenario = scenario_of(asked)
    nodes = sizes_of(asked, scenario)
    for sentence in first_answer(scenario, nodes):
        output.message(sentence)
    seconds = quantity("--patience", patience, "seconds") if patience else PATIENCE
    with search_progress(output) as told:
        whole = space(scenario, nodes)
        pool = pool_choice(jobs, None)
        found = recommend(
            SearchRequest(whole, goal, pool, points_folder(), MOST_PLAYED, told, seconds)
        )
    output.answer(found.to_json(), say.search_words(found), say.search_tables(found))
    if path is not None and (winner := winning(found)) is not None:
        write_text(path, _plan_text(asked, scenario, winner), force=force)
        output.message(f"Wrote {path}. `twin run {path}` simulates it.")
    if decision is not None:
        command = shlex.join(["twin", *sys.argv[1:]])
        words = f"{scenario.name}: {goal.words}?"
        today = datetime.now(UTC).date().isoformat()
        text = page(Decision(scenario.name, words, found, command, today))
        write_text(decision, text, force=force)
        output.message(f"Wrote {decision}: the decision on one page.")
    return unanswered(found.ends) if found.pick is None else 0


def _plan_text(asked: PlanQuestion, scenario: Any, winner: list[str]) -> str:
    """The recommended plan as YAML."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.yaml"
        file.write_text(scenario_text(asked), encoding="utf-8")
        batch = f"train.global_batch={scenario.train.global_batch_sequences}seq"
        return resolve(load(file, [batch, *winner]))


def _model(text: str) -> str | Mapping[str, Any]:
    """A model of the catalog, or the fields of a released configuration."""
    file = Path(text)
    if file.suffix != ".json":
        return text
    name = file.absolute().parent.name if file.stem == "config" else file.stem
    return read_hf_config(file, name).model.model_dump(mode="json", exclude_defaults=True)
