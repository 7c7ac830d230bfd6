"""`twin new`: from a question to a plan, without a scenario file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from twin.answers.remembered import PRICE, remember, remembered
from twin.cli import search_tables as say
from twin.cli.answer import search_progress
from twin.cli.output import Output, require_writable, write_text
from twin.cli.recommend import unanswered
from twin.cli.sweep import pool_choice
from twin.cli.verbs import naming_options
from twin.explore.search.decision import decision
from twin.explore.search.decision_page import page
from twin.explore.search.new_plan import (
    PlanQuestion,
    answered,
    first_answer,
    plan_text,
    understood,
)
from twin.interop.importing.hf_config import read_hf_config


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
    decision_file: Path | None,
    force: bool,
    jobs: int | None,
    output: Output,
) -> int | None:
    """A plan for a model, a GPU and a number of tokens."""
    for file in (path, decision_file):
        if file is not None:
            require_writable(file, force=force)
    fields, name = _model(model)
    asked = PlanQuestion(
        model=fields,
        gpu=gpu,
        tokens=tokens,
        target=target or "",
        budget=budget or "",
        gpus=gpus or "",
        price=remembered(PRICE) if price is None else price,
        sequence=sequence or "",
        batch=batch or "",
        stack=stack or "",
        patience=patience or "",
        name=name,
        source=model if name else "",
    )
    with naming_options("new"):
        request = understood(asked)
    _say_price(asked, price, output)
    first = first_answer(request)
    for sentence in first:
        output.message(sentence)
    with search_progress(output) as told, naming_options("new"):
        found = answered(request, pool_choice(jobs, None), told)
    made = decision(found, request.words, asked.command, datetime.now(UTC).date().isoformat())
    must = [f"- {one}" for one in made.conditions]
    said = [*say.search_words(found), *(["What must be true:", *must] if must else [])]
    document = {"question": asdict(asked), "first_answer": first, "decision": asdict(made)}
    output.answer(found.to_json() | document, said, say.search_tables(found))
    if path is not None and found.pick is not None:
        write_text(path, plan_text(request, made.plans[0].overrides), force=force)
        output.message(f"Wrote {path}. `twin run {path}` simulates it.")
    if decision_file is not None:
        write_text(decision_file, page(made), force=force)
        output.message(f"Wrote {decision_file}: the decision on one page.")
    return unanswered(found.ends) if found.pick is None else 0


def _say_price(asked: PlanQuestion, price: str | None, output: Output) -> None:
    """Keep a price that was said, and say where one came from that was not."""
    if price is not None:
        remember(PRICE, price)
    elif asked.price:
        output.message(f"{asked.price} per GPU-hour, as said before; `--price` changes it.")


def _model(text: str) -> tuple[str, str]:
    """A model of the catalog; or the fields of a released configuration, and its name."""
    file = Path(text)
    if file.suffix != ".json":
        return text, ""
    name = file.absolute().parent.name if file.stem == "config" else file.stem
    return read_hf_config(file, name).on_one_line, name
