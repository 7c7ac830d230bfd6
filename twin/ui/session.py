"""The state of one visitor's session: the only module that keeps values between two runs of a page.

Sessions share nothing. The link in the address bar is written from the state, and read once, when
the session begins, and again when the visitor goes back or forward in the browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Final
from weakref import finalize

import streamlit as st

from twin.evidence.live.follower import Follower, follow
from twin.ui.answers import Question, Reply
from twin.ui.background import Pending, Stopped
from twin.ui.links import LONGEST, BrokenLinkError, Query, decode, encode, last, left_out
from twin.ui.scenarios import ScenarioFiles, command_line, scenario_files
from twin.ui.workspace import Draft, History, Workspace

_HISTORY: Final = "history"
_MEASURED: Final = "measured run"
_TRACES: Final = "profiler traces"
_FOLLOWED: Final = "followed run"
_VALIDATED: Final = "validated again"
_BROKEN: Final = "broken link"
_KNOWN: Final = "known scenarios"
_AWAITED: Final = "awaited"
_STOPPED: Final = "stopped"
_REPLIES: Final = "replies"
_SECTIONS: Final = "sections"
_WANTED: Final = "wanted section"
_LEADS: Final = "link leads to a plan"
_TYPED: Final = "question of a new plan"
_BROUGHT: Final = "launch script"
_LINK: Final = "link at first"
_TOUCHED: Final = "a widget was used"
_WRITTEN: Final = "link as last written"
_ON_ITS_WAY: Final = 1.0
"""Seconds in which a link may still be on its way to the browser: an older one that comes back is
late, and not a visitor's."""
_PAGE: Final = "page as last drawn"
_OF_PLANS: Final = {"v", "plan", "update"}
"""Parameters of a link to plans."""


def begin(page: str) -> None:
    """Look at the scenarios' files; open what the link says on the first run, and where the visitor
    went back or forward in the browser."""
    st.session_state[_KNOWN] = scenario_files()
    st.session_state[_AWAITED] = []
    st.session_state[_REPLIES] = {}
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    touched = st.session_state.pop(_TOUCHED, False)
    if _HISTORY in st.session_state:
        _revisit(page, query, touched=touched)
    else:
        st.session_state[_SECTIONS] = {}
        st.session_state[_MEASURED] = last(query, "run")
        st.session_state[_WANTED] = last(query, "section")
        st.session_state[_HISTORY] = History(_first(known(), query))
        st.session_state[_LINK] = {key: last(query, key) or "" for key in query}
        st.session_state[_LEADS] = bool(_OF_PLANS & set(query) or command_line())


def is_another(page: str) -> bool:
    """Whether the visitor comes to this page, from another or from outside; false from then on."""
    before, st.session_state[_PAGE] = st.session_state.get(_PAGE), page
    return before != page


def leads_to_plan() -> bool:
    """Whether the link, or the command that opened the app, names a plan; true once."""
    return st.session_state.pop(_LEADS, False)


def asked_by_link(name: str) -> str:
    """A field of a question that the link says; empty where it does not."""
    return st.session_state[_LINK].get(name, "")


def typed() -> dict[str, str]:
    """What stands in the fields of a new plan's question, by name; empty until it is filled."""
    return st.session_state.setdefault(_TYPED, {})


def brought() -> dict[str, str]:
    """The launch script that is shown, and what was said about it; empty until it is filled."""
    return st.session_state.setdefault(_BROUGHT, {})


def write_question() -> None:
    """Put the question of a new plan into the address bar."""
    _write({name: [text] for name, text in typed().items() if text})


def known() -> ScenarioFiles:
    """The scenarios that the app knows by name, as their files stood when this run began."""
    return st.session_state[_KNOWN]


def awaited() -> list[tuple[Pending[Any], str]]:
    """The work that this run of the page waits for, each with a description."""
    return st.session_state[_AWAITED]


def wait_for(pending: Pending[Any], words: str) -> None:
    """Wait for some work in this run of the page; work is described once."""
    if not any(one is pending for one, _ in awaited()):
        awaited().append((pending, words))


def replies() -> dict[Question, Reply]:
    """The replies that this run of the page has shown: one per question, so that a simulation that
    ends meanwhile does not give a plan two answers on one screen."""
    return st.session_state[_REPLIES]


def stop(pending: Pending[Any]) -> None:
    """Stop some work, as this visitor wishes."""
    pending.stop()
    st.session_state.setdefault(_STOPPED, []).append(pending.within(0))


def has_stopped(found: Stopped) -> bool:
    """Whether this visitor stopped some work; others may want it done."""
    return any(one is found for one in st.session_state.get(_STOPPED, ()))


def workspace() -> Workspace:
    """The plans of the visitor."""
    return history().now


def history() -> History:
    """The plans of the visitor, and what they were before."""
    return st.session_state[_HISTORY]


def change(what: Callable[[Workspace], Workspace]) -> None:
    """Change the workspace: what the callbacks of widgets do."""
    _go(history().changed(what(workspace())))


def undo() -> None:
    """Take the last change back."""
    _go(history().back())


def redo() -> None:
    """Make the change again that was taken back last."""
    _go(history().forward())


def _go(to: History) -> None:
    st.session_state[_HISTORY], st.session_state[_TOUCHED] = to, True


def section(page: str, names: Iterable[str]) -> str:
    """The section of a page that is shown, from a row of names: the visitor's choice, or else the
    link's, or else the first."""
    found, chosen = list(names), st.session_state[_SECTIONS]
    wanted = st.session_state[_WANTED]
    named = next((name for name in found if wanted and slug(name) == slug(wanted)), None)
    if named is not None:
        chosen[page], st.session_state[_WANTED] = named, None
    shown = chosen[page] if chosen.get(page) in found else found[0]
    key = widget_key(f"section of {page}", shown, found)

    def choose() -> None:
        chosen[page], st.session_state[_TOUCHED] = st.session_state[key], True

    st.segmented_control(
        f"Section of {page}",
        found,
        default=shown,
        required=True,
        key=key,
        on_change=choose,
        label_visibility="collapsed",
    )
    return shown


def want_section(name: str) -> None:
    """Show a section on the page that is opened next."""
    st.session_state[_WANTED] = name


def shown_section(page: str) -> str | None:
    """The section of a page for its link; None where none was chosen."""
    wanted: str | None = st.session_state[_WANTED]
    name: str | None = wanted or st.session_state[_SECTIONS].get(page)
    return None if name is None else slug(name)


def slug(name: str) -> str:
    """A section's name in a link: `Break-even points` is `break-even-points`."""
    return name.lower().replace(" ", "-").replace("_", "-")


def measured() -> str | None:
    """The name of the real run that is shown; None: the newest."""
    return st.session_state.get(_MEASURED)


def show_measured(name: str) -> None:
    """Show this real run."""
    st.session_state[_MEASURED] = name


def traces() -> Traces | None:
    """The profiler traces that the visitor brought."""
    return st.session_state.get(_TRACES)


def bring_traces(files: Sequence[tuple[str, memoryview]], most: int) -> None:
    """Keep these traces, at most so many, and forget those before; on disk, where they go with the
    session."""
    folder, names, before = mkdtemp(prefix="twin-traces-"), list[str](), traces()
    for name, data in files[:most]:
        own = Path(name).name
        own = own if own not in names else f"{len(names)}-{own}"
        (Path(folder) / own).write_bytes(data)
        names.append(own)
    turn = 1 if before is None else before.turn + 1
    kept = Traces(folder, tuple(names), len(files) - len(names), turn)
    finalize(kept, rmtree, folder, ignore_errors=True)
    st.session_state[_TRACES] = kept


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Traces:
    """Traces in a folder on disk, deleted when no session has them any more."""

    folder: str
    names: tuple[str, ...]
    left_out: int
    """Files that were too many."""
    turn: int
    """How often traces were brought."""


def followed(folder: str, against: str | None) -> Follower:
    """The follower of a run against a seal; it keeps what it has read. Raises `UsageError` where
    there is no such run or seal."""
    kept: tuple[tuple[str, str | None], Follower] | None = st.session_state.get(_FOLLOWED)
    if kept is None or kept[0] != (folder, against):
        kept = (folder, against), follow(folder, against)
        st.session_state[_FOLLOWED] = kept
    return kept[1]


def validated() -> str | None:
    """The digest for which this session asked to predict the published rows again; None: it did
    not ask."""
    return st.session_state.get(_VALIDATED)


def validate_again(made_from: str) -> None:
    """Show published rows as this twin predicts them, not the predictions that ship."""
    st.session_state[_VALIDATED] = made_from


def widget_key(name: str, shown: object, labels: Iterable[str] = ()) -> str:
    """The key of a widget that shows a value of the state; a fresh key where the widget has another
    value by now, as after an undo, or where the `labels` of its options changed: the browser would
    send back the old label.

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


def write_link(page: str) -> None:
    """Put the workspace into the address bar, with the section of the page, unless it is longer
    than servers take."""
    _write(encode(workspace(), section=shown_section(page), run=measured()))


def _write(query: dict[str, list[str]]) -> None:
    if sum(len(text) for values in query.values() for text in values) > LONGEST:
        query = {}
    if {key: st.query_params.get_all(key) for key in st.query_params} != query:
        st.query_params.from_dict(query)
    if query != st.session_state.get(_WRITTEN, (None, 0.0))[0]:
        st.session_state[_WRITTEN] = query, time.monotonic()


def _revisit(page: str, query: Query, *, touched: bool) -> None:
    """Open the plans and the section of an earlier link.

    Streamlit tells of a browser's "Back" by a run with that link and nothing else. A run may also
    come with an old link because the new one is still on its way."""
    written, since = st.session_state.get(_WRITTEN, (query, 0.0))
    if query == written:
        st.session_state[_WRITTEN] = written, 0.0
        return
    late = time.monotonic() - since < _ON_ITS_WAY
    if touched or late or not _OF_PLANS & set(query):
        return
    try:
        found = decode(query)
    except BrokenLinkError:  # an address that was typed; what is open stays
        return
    st.session_state[_HISTORY] = history().changed(found)
    if (wanted := last(query, "section")) != shown_section(page):
        st.session_state[_SECTIONS].pop(page, None)
        st.session_state[_WANTED] = wanted


def say_broken_link() -> None:
    """What of the link that was followed opened nothing, until the visitor has read it."""
    reason = st.session_state.get(_BROKEN)
    if reason is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        st.warning(reason, icon=":material/link_off:")
        st.button("Got it", on_click=lambda: st.session_state.pop(_BROKEN, None))


def _first(scenarios: ScenarioFiles, query: Query) -> Workspace:
    """The workspace to begin with."""
    usual = Workspace((Draft(scenarios.first, scenarios.first),))
    if not _OF_PLANS & set(query):
        return usual
    try:
        found = decode(query)
        _refuse_unknown(found.plans, scenarios)
    except BrokenLinkError as error:
        st.session_state[_BROKEN] = (
            f"This link could not be opened. {error} A shipped scenario is shown instead; ask for "
            "the link, or for the scenario's file, again."
        )
        return usual
    if unknown := left_out(query):
        st.session_state[_BROKEN] = f"Not all of this link could be opened. {unknown}"
    return found


def _refuse_unknown(plans: Iterable[Draft], scenarios: ScenarioFiles) -> None:
    for plan in plans:
        if plan.text is None and plan.scenario not in scenarios.files:
            raise BrokenLinkError(
                f"This app knows no scenario `{plan.scenario[:80]}`: it is a file on the machine "
                "where the link was made, or has another name now."
            )
