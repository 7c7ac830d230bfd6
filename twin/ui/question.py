"""The question of a new plan: its fields, what is wrong with them beside each, and its link.

What is typed is kept as typed; a number alone gets the unit that the field's label says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import streamlit as st

from twin.answers.remembered import PRICE, remember, remembered
from twin.arch.count import parameters
from twin.errors import Problem, render
from twin.explore.search.decision_page import Decision
from twin.explore.search.new_plan import PlanQuestion, PlanRequest, known_gpus, understood
from twin.interop.importing.hf_config import Imported, read_hf_text
from twin.loading import catalog_parts
from twin.loading.files import table
from twin.reports.table import count
from twin.ui import session
from twin.ui.answers import Failure, Refusal, guarded
from twin.ui.place import code
from twin.ui.session import widget_key

Typed = Mapping[str, str]
"""What stands in the fields, by name."""
LABELS: Final = table(__name__, "LABELS")
HINTS: Final = table(__name__, "HINTS")
UNITS: Final = table(__name__, "UNITS")
"""The unit that a label says."""
CONFIG: Final = "config"
"""The text of an own model's config.json."""
FILE: Final = "source"
"""The name of its file."""
OWN: Final = "own"
"""Said where the model is that of a config.json."""
_EXAMPLE: Final = Path(__file__).with_name("example.json")
"""What `twin new --json` answered to a question, on the day that it says."""
_SOURCES: Final = ("Catalog model", "My config.json")
_NUMBER: Final = re.compile(r"\d[\d_]*(\.\d+)?[kKMGT]?")
_THOUSANDS: Final = re.compile(r"\d{1,3}(,\d{3})+")
_ASKED: Final = tuple(one.name for one in fields(PlanQuestion))
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@cache
def example() -> tuple[PlanQuestion, Decision]:
    """A question, and the stored decision."""
    data = json.loads(_EXAMPLE.read_text(encoding="utf-8"))
    return PlanQuestion(**data["question"]), Decision.read(data["decision"])


def first_typed(example: PlanQuestion) -> dict[str, str]:
    """What stands in the fields at first: the link's question, else the example's, at the price
    that was said last."""
    said = {key: text for key in (*_ASKED, CONFIG, OWN) if (text := session.asked_by_link(key))}
    if said:
        return said
    typed = {key: str(getattr(example, key)) for key in _ASKED}
    typed |= {PRICE: price} if (price := remembered(PRICE)) else {}
    return {key: text.removesuffix(UNITS.get(key, "")) for key, text in typed.items()}


def question(typed: Typed) -> PlanQuestion | Failure:
    """What the fields ask for, or what is wrong with the model's configuration."""
    said = {key: _with_unit(key, typed.get(key, "").strip()) for key in _ASKED}
    asked = PlanQuestion(**said | {"gpu": said["gpu"].casefold()})
    if not typed.get(OWN):
        return replace(asked, name="", source="")
    text = typed.get(CONFIG, "").strip()
    if not text:
        missing = "the configuration of the model is missing"
        return Refusal((Problem("TW011", "", missing, "upload or paste it"),))
    file = typed.get(FILE) or "config.json"
    name = "my-model" if file == "config.json" else re.sub(r"[^\w.-]+", "-", Path(file).stem)
    own = own_model(text, file, name)
    if not isinstance(own, Imported):
        return own
    return replace(asked, model=own.on_one_line, name=name, source=file)


@lru_cache(32)
def own_model(text: str, file: str, name: str) -> Imported | Failure:
    """The model of a config.json."""
    return guarded(lambda: read_hf_text(text, file, name))


@lru_cache(32)
def request(asked: PlanQuestion) -> PlanRequest | Failure:
    """The question, understood, or what is wrong with its fields."""
    return guarded(lambda: understood(asked))


def _with_unit(key: str, text: str) -> str:
    """The text with the unit of its label, where it is a number alone."""
    if key == "gpus" and _THOUSANDS.fullmatch(text):
        return text.replace(",", "")
    return text + UNITS[key] if key in UNITS and _NUMBER.fullmatch(text) else text


def keep_price(asked: PlanQuestion) -> None:
    """Remember the price on the planner's own machine; visitors of a shared app share none."""
    if asked.price and st.get_option("server.address") in _LOCAL:
        remember(PRICE, asked.price)


def form(typed: dict[str, str], problems: tuple[Problem, ...]) -> None:
    """The fields, each with what is wrong with it below; a change is kept at once."""
    wrong = {one.path: one for one in problems}
    _model(typed, wrong)
    _choice("gpu", known_gpus(), typed, wrong)
    for pair in (("tokens", "target"), ("gpus", "budget"), (PRICE,)):
        for place, key in zip(st.columns(2), pair, strict=False):
            with place:
                _text(key, typed, wrong)
    more = ("sequence", "batch", "stack", "patience")
    with st.expander("More", expanded=any(key in wrong or typed.get(key) for key in more)):
        for key in more:
            if key == "stack":
                _choice(key, ("", *catalog_parts("software")), typed, wrong)
            else:
                _text(key, typed, wrong)


def _model(typed: dict[str, str], wrong: Mapping[str, Problem]) -> None:
    """The model: of the catalog, or of a config.json that is uploaded or pasted."""
    own = st.segmented_control(
        LABELS["model"],
        _SOURCES,
        default=_SOURCES[bool(typed.get(OWN))],
        required=True,
        key="new model source",
        on_change=_choose_source,
    )
    if own == _SOURCES[0]:
        _choice("model", catalog_parts("models"), typed, wrong, hidden=True)
        return
    st.file_uploader("Upload a config.json", "json", key="new file", on_change=_upload)
    key = widget_key("new config", typed.get(CONFIG, ""))
    st.text_area(
        "or paste it here",
        typed.get(CONFIG, ""),
        key=key,
        height=120,
        placeholder='{"model_type": "qwen3_moe", "num_hidden_layers": 94, ...}',
        on_change=_typed,
        args=(CONFIG, key),
    )
    asked = question(typed)
    if isinstance(asked, Refusal) and typed.get(CONFIG):
        _complain("This configuration cannot be read:")
        code(render(asked.problems))
    elif isinstance(asked, PlanQuestion) and asked.name:
        st.markdown(f":small[{_size(typed)}]")


def _size(typed: Typed) -> str:
    """Parameters of the own model."""
    asked = question(typed)
    assert isinstance(asked, PlanQuestion)
    own = own_model(typed[CONFIG].strip(), asked.source, asked.name)
    assert isinstance(own, Imported)
    found = parameters(own.model)
    active = f", {count(found.activated_with_head)} active" if own.model.moe else ""
    notes = "".join(f" {one}" for one in own.warnings)
    return f"{count(found.total)} parameters{active}, {own.model.layers} layers.{notes}"


def _choose_source() -> None:
    own = st.session_state["new model source"] == _SOURCES[1]
    session.typed()[OWN] = "yes" if own else ""


def _choice(
    name: str,
    options: tuple[str, ...],
    typed: Typed,
    wrong: Mapping[str, Problem],
    *,
    hidden: bool = False,
) -> None:
    """A field whose values are known."""
    now = typed.get(name, "")
    known = next((one for one in options if one.casefold() == now.casefold()), None)
    every = options if known is not None else (now, *options)
    key = widget_key(f"new {name}", known if known is not None else now)
    st.selectbox(
        LABELS[name],
        every,
        every.index(known if known is not None else now),
        format_func=lambda one: one or "typical for the layout",
        key=key,
        help=HINTS.get(name),
        on_change=_typed,
        args=(name, key),
        label_visibility="collapsed" if hidden else "visible",
    )
    _say(wrong.get(name))


def _text(name: str, typed: Typed, wrong: Mapping[str, Problem]) -> None:
    """A field that is typed."""
    now = typed.get(name, "")
    key = widget_key(f"new {name}", now)
    st.text_input(
        LABELS[name],
        now,
        key=key,
        placeholder=HINTS.get(f"{name}.empty", ""),
        help=HINTS.get(name),
        on_change=_typed,
        args=(name, key),
    )
    _say(wrong.get(name))


def _say(problem: Problem | None) -> None:
    """What is wrong with a field, below it."""
    if problem is not None:
        fix = f" {problem.hint[:1].upper()}{problem.hint[1:]}." if problem.hint else ""
        _complain(f"{problem.message[:1].upper()}{problem.message[1:]}.{fix}")


def _complain(words: str) -> None:
    st.markdown(f":red[:material/error: {words}]")


def _typed(name: str, key: str) -> None:
    session.typed()[name] = st.session_state[key] or ""


def _upload() -> None:
    """Take the text of a file; what is no text stays there, and the page says so."""
    file: Any = st.session_state["new file"]
    if file is not None:
        session.typed()[CONFIG] = file.getvalue().decode("utf-8-sig", errors="replace")
        session.typed()[FILE] = file.name


def problems_of(found: object) -> tuple[Problem, ...]:
    """What is wrong with the fields."""
    return found.problems if isinstance(found, Refusal) else ()
