"""What one visitor has on the desk: the only module that keeps anything between two runs of a page.

Nothing here is shared between sessions; the link in the address bar is written from it, and read
once, when the session begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import streamlit as st

from twin.evidence.live.follower import Follower, follow
from twin.ui.desk import Desk, Draft
from twin.ui.jobs import Pending
from twin.ui.known import Known, asked_for, known
from twin.ui.links import LONGEST, BrokenLinkError, Query, decode, encode, run_of, update_of

_DESK: Final = "desk"
_UPDATE: Final = "weight update"
_MEASURED: Final = "measured run"
_FOLLOWED: Final = "followed run"
_VALIDATED: Final = "validated again"
_WANTED: Final = "weight update wanted"
_BROKEN: Final = "broken link"
_KNOWN: Final = "known scenarios"
_AWAITED: Final = "awaited"


def begin() -> None:
    """Look at the scenarios' files; on the first run, put on the desk what the link says."""
    st.session_state[_KNOWN] = known()
    st.session_state[_AWAITED] = []
    if _DESK not in st.session_state:
        st.session_state[_MEASURED] = run_of(
            {key: st.query_params.get_all(key) for key in st.query_params}
        )
        st.session_state[_DESK], linked = _first(the_known())
        if linked is not None:
            open_update(linked)


def the_known() -> Known:
    """The scenarios that the app knows by name, as their files stood when this run began."""
    return st.session_state[_KNOWN]


def awaited() -> list[tuple[Pending[Any], str]]:
    """What this run of the page could not show yet, each with what it is."""
    return st.session_state[_AWAITED]


def desk() -> Desk:
    """What is on the desk."""
    return st.session_state[_DESK]


def change(what: Callable[[Desk], Desk]) -> None:
    """Change the desk: what the callbacks of widgets do."""
    st.session_state[_DESK] = what(desk())


def update() -> Draft | None:
    """The weight update that its page shows; None where this app knows none."""
    shown: Draft | None = st.session_state.get(_UPDATE)
    names = the_known().updates
    if shown is not None and shown.scenario in names:
        return shown
    return next((Draft(name, name) for name in names), None)


def show_update(draft: Draft) -> None:
    """Let the page of weight updates show this one."""
    st.session_state[_UPDATE] = draft


def open_update(draft: Draft) -> None:
    """Show this weight update on its page, from any page."""
    show_update(draft)
    st.session_state[_WANTED] = True


def wants_update() -> bool:
    """True once after `open_update`: the page of weight updates is asked for."""
    return st.session_state.pop(_WANTED, False)


def measured() -> str | None:
    """The name of the real run that its page shows; None: the newest."""
    return st.session_state.get(_MEASURED)


def show_measured(name: str) -> None:
    """Let the page of real runs show this one."""
    st.session_state[_MEASURED] = name


def followed(folder: str, against: str | None) -> Follower:
    """What follows a run against a seal; it keeps what it has read. Raises `UsageError` where there
    is no such run or seal."""
    kept: tuple[tuple[str, str | None], Follower] | None = st.session_state.get(_FOLLOWED)
    if kept is None or kept[0] != (folder, against):
        kept = (folder, against), follow(folder, against)
        st.session_state[_FOLLOWED] = kept
    return kept[1]


def validated() -> str | None:
    """What published rows were predicted from that this session asked to be predicted again; None:
    it did not ask."""
    return st.session_state.get(_VALIDATED)


def validate_again(made_from: str) -> None:
    """Show published rows as this twin predicts them, and not the answers that ship."""
    st.session_state[_VALIDATED] = made_from


def widget_key(name: str, shown: object, labels: Iterable[str] = ()) -> str:
    """The key of a widget that shows a value of the desk; a fresh one where the widget has another
    value by now, as after an undo, or where the `labels` of its options are others: the browser
    would send back the label of before.

    The value goes to the widget as its default, not into its state: a page that is left before the
    browser has drawn it would report an empty state as if the visitor had typed it."""
    name = "|".join((name, *labels))
    counter = f"{name}, renewed"
    renewed: int = st.session_state.get(counter, 0)
    key = f"{name}#{renewed}"
    if key in st.session_state and st.session_state[key] != shown:
        st.session_state[counter] = renewed + 1
        return f"{name}#{renewed + 1}"
    return key


def write_link(shown: Draft | None = None, run: str | None = None) -> None:
    """Put the desk into the address bar, and the weight update or the real run that is shown,
    unless they are longer than servers take."""
    query = encode(desk(), shown, run)
    if sum(len(text) for values in query.values() for text in values) > LONGEST:
        query = {}
    if {key: st.query_params.get_all(key) for key in st.query_params} != query:
        st.query_params.from_dict(query)


def say_broken_link() -> None:
    """Why the link that was followed opened nothing, until the visitor has read it."""
    reason = st.session_state.get(_BROKEN)
    if reason is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(
            f"This link could not be opened. {reason} A shipped scenario is shown instead; ask for "
            "the link, or for the scenario's file, again.",
            icon=":material/link_off:",
        )
        st.button("Got it", on_click=lambda: st.session_state.pop(_BROKEN, None))


def _first(scenarios: Known) -> tuple[Desk, Draft | None]:
    """The desk to begin with, and the weight update that the link asks for."""
    usual = Draft(scenarios.first, scenarios.first)
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    try:
        return _linked(query, usual, scenarios)
    except BrokenLinkError as error:
        st.session_state[_BROKEN] = str(error)
        return Desk((usual,)), None


def _linked(query: Query, usual: Draft, scenarios: Known) -> tuple[Desk, Draft | None]:
    """What a link opens. A weight update may stand in the place of a plan, too: a desk has none."""
    written = bool({"v", "plan"} & set(query))
    found = decode(query) if written else Desk((usual,))
    shown = update_of(query) or (None if written else _asked_update(scenarios))
    _refuse_unknown([*found.plans, *([shown] if shown else [])], scenarios)
    if shown is not None and shown.scenario not in scenarios.updates:
        raise BrokenLinkError(f"`{shown.scenario[:80]}` is no weight update.")
    if _is_update(found.open, scenarios):
        shown = found.open
    while any(_is_update(plan, scenarios) for plan in found.plans):
        if len(found.plans) == 1:
            return Desk((usual,)), shown
        at = next(at for at, plan in enumerate(found.plans) if _is_update(plan, scenarios))
        found = found.removed(at)
    return found, shown


def _asked_update(scenarios: Known) -> Draft | None:
    """The weight update that the app was started with, where it was started with nothing else."""
    asked = asked_for()
    names = [name for name, file in scenarios.updates.items() if file in asked]
    runs = any(file in asked for file in scenarios.files.values())
    return Draft(names[0], names[0]) if names and not runs else None


def _is_update(plan: Draft, scenarios: Known) -> bool:
    return plan.text is None and plan.scenario in scenarios.updates


def _refuse_unknown(plans: Iterable[Draft], scenarios: Known) -> None:
    for plan in plans:
        if plan.text is None and plan.scenario not in {*scenarios.files, *scenarios.updates}:
            raise BrokenLinkError(
                f"This app knows no scenario `{plan.scenario[:80]}`: it is a file of the one who "
                "made the link, or has another name now."
            )
