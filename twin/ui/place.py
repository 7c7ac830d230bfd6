"""How figures and tables are placed: the only module that hands data to streamlit's charts.

The state that every page shows: the open plan with its answer, and the baseline.
"""

# Streamlit's annotations name types of libraries that this project does not install.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import streamlit as st

from twin.answers import Run
from twin.figures.charts import Control, View
from twin.figures.legend import bare, legend
from twin.figures.palette import Theme
from twin.figures.plotly import Picture, capital
from twin.kinds.base import Check, Verb, kind_of
from twin.reports import resolved
from twin.reports.table import Block, Table
from twin.ui import session
from twin.ui.answers import (
    Bug,
    Failure,
    Planned,
    Question,
    Refusal,
    Reply,
    begun,
    checked,
    is_known,
    plan_of,
    question,
    reply,
    scenario_of,
)
from twin.ui.background import Pending, Stopped
from twin.ui.workspace import Draft, Workspace

_T = TypeVar("_T")

_CHART = {"displayModeBar": False}
"""A toolbar would cover values: dragging zooms, and a double click goes back."""
_ROOM = 240
"""Pixels that a coming answer takes at least."""
_LONG = 1e5
"""From here on a number is read with separators."""
_STEPS = 200
"""Positions of a window slider."""


def theme() -> Theme:
    """The theme in which the browser shows the page."""
    return "dark" if st.context.theme.type == "dark" else "light"


def place(picture: Picture, key: str, chosen: Callable[[], None] | None = None) -> None:
    """Show a figure: its finding, how to read it, the chart, and its numbers as a table, so that
    nothing is said by colour or hovering alone. `chosen` is called after a click on a point; the
    point is in the session's state under the key."""
    findings = picture.title.splitlines()
    st.markdown("  \n".join(f"**{line}**" for line in findings))
    st.caption(picture.caption)
    if entries := legend(picture.figure):
        st.html(entries)
    st.plotly_chart(
        bare(picture.figure),
        key=key,
        config=_CHART,
        alt=". ".join(findings),
        on_select=chosen or "ignore",
        selection_mode="points",
    )
    if picture.table:
        with st.expander("Show as table", icon=":material/table:"):
            table(picture.table)


def small(words: str) -> None:
    """A remark, in small letters of full contrast."""
    st.markdown(f":small[{words}]")


def sections(views: Iterable[View]) -> dict[str, list[View]]:
    """Views by the section of the page that they belong to, in order."""
    found: dict[str, list[View]] = {}
    for one in views:
        found.setdefault(one.section, []).append(one)
    return found


def show_views(views: Sequence[View], name: str) -> None:
    """Figures under their headings; neighbours with one heading share it. `name` tells apart the
    keys of several plans."""
    heading = ""
    for one in views:
        if one.folded:
            box = st.expander(one.heading, key=f"{name}|{one.heading}", on_change="rerun")
            if box.open:
                with box:
                    _show_view(one, name)
            continue
        if one.heading != heading:
            st.header(one.heading)
        heading = one.heading
        _show_view(one, name)


@st.fragment
def _show_view(view: View, name: str) -> None:
    """A figure with its controls; a change of one draws nothing else again."""
    chosen: dict[str, Any] = {}
    if view.controls:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
            chosen = {
                one.key: _control(one, f"{view.key}|{one.key}|{name}") for one in view.controls
            }
    place(view.draw(theme(), chosen), key=f"{view.key}|{name}")


def _control(control: Control, key: str) -> Any:
    """The widget of a control; returns its value."""
    match control.kind:
        case "switch":
            return st.toggle(control.label, control.default, key=key, help=control.help or None)
        case "choice":
            options = control.options
            default = control.default if control.default in options else next(iter(options))
            if len(options) > _MOST_SEGMENTS:
                return st.selectbox(
                    control.label,
                    list(options),
                    list(options).index(default),
                    format_func=options.__getitem__,
                    key=key,
                    width=320,
                )
            return st.segmented_control(
                control.label,
                list(options),
                default=default,
                required=True,
                format_func=lambda one: options[one],
                key=key,
                wrap=True,  # beside other controls it would scroll, and cut its first ones off
            )
        case "window":
            return _window(control, key)


_MOST_SEGMENTS = 5
"""Options that stand side by side; more are a list."""


def _window(control: Control, key: str) -> tuple[int, int]:
    """A part of the time (ns), chosen in seconds."""
    seconds = control.end_ns / 1e9
    first, last = control.default
    decimals = max(0, 3 - len(str(int(seconds))))
    start, end = st.slider(
        control.label,
        0.0,
        seconds,
        (first / 1e9, last / 1e9),
        seconds / _STEPS,
        format=f"%.{decimals}f",
        key=f"{key} {control.end_ns}",
    )
    return round(start * 1e9), round((end if end > start else seconds) * 1e9)


def blocks(found: Sequence[Block]) -> None:
    """Tables and notes of an answer, each under its title, or its first column's; all but the first
    are folded."""
    for block in found:
        title = block.title or (block.heads[0] if isinstance(block, Table) else "")
        with st.expander(capital(title), expanded=block is found[0], icon=":material/table:"):
            show_block(block)


def show_block(block: Block) -> None:
    """A table or notes of an answer, without the title."""
    if isinstance(block, Table):
        table(block.records())
        if block.caption:
            st.caption(block.caption)
    else:
        st.markdown("\n".join(f"- {line}" for line in block.lines))


def table(rows: Sequence[Mapping[str, str]]) -> None:
    """Show rows of text as a real table, which screen readers and the page's search can read."""
    st.table([dict(row) for row in rows], hide_index=True, border="horizontal")


def grid(
    rows: Sequence[Mapping[str, Any]],
    key: str,
    words: str,
    chosen: Callable[[], None] | None = None,
) -> None:
    """Show many rows as a table that can be sorted and searched; `words` describe it. `chosen` is
    called after a row was chosen; it is in the session's state under the key."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    looks: dict[str, Any] = {"Link": st.column_config.LinkColumn(display_text="open")}
    looks |= {
        name: st.column_config.NumberColumn(format="localized")
        for name, cells in columns.items()
        if any(isinstance(one, int | float) and abs(one) >= _LONG for one in cells)
    }
    st.dataframe(
        columns,
        hide_index=True,
        column_config=looks,
        key=key,
        alt=words,
        placeholder="",
        on_select=chosen or "ignore",
        selection_mode="single-row",
    )


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """The workspace, the question of the open plan, and whether it is compared with the baseline.
    Replies are made when a page first needs them."""

    workspace: Workspace
    asked: Question
    has_baseline: bool

    @property
    def plan(self) -> Draft:
        """The open plan."""
        return self.workspace.open

    @property
    def reply(self) -> Reply:
        """The reply to the open plan."""
        return _titled(replied(self.asked), self.plan)

    @property
    def reference(self) -> Reply | None:
        """The reply to the baseline; None where the open plan is that, or has none."""
        if not self.has_baseline:
            return None
        base = self.workspace.reference
        return _titled(replied(ask_about(base)), base)

    @property
    def stopped(self) -> tuple[Stopped, ...]:
        """What was stopped of the open plan and of the baseline, in this order."""
        both = self.reply, self.reference
        return tuple(one.stopped for one in both if one is not None and one.stopped is not None)

    @property
    def baseline(self) -> Run | None:
        """The answer to compare with; None where there is none of the same kind."""
        other = self.reference.now if self.reference else None
        mine = self.reply.now
        if not isinstance(mine, Run) or not isinstance(other, Run):
            return None
        return other if mine.kind.name == other.kind.name else None


def open_plan() -> OpenPlan:
    """The answer to the open plan now."""
    workspace = session.workspace()
    asked, base = ask_about(workspace.open), ask_about(workspace.reference)
    return OpenPlan(workspace, asked, asked != base)


def replied(asked: Question) -> Reply:
    """The reply that this run of the page shows, wherever it asks."""
    known = session.replies()
    if asked not in known:
        found = reply(asked)
        if found.stopped is not None and not session.has_stopped(found.stopped):
            found.stopped.again()
            found = reply(asked)
        known[asked] = found
    return known[asked]


def replied_all(plans: Sequence[Draft]) -> list[Reply]:
    """The replies of several plans; before they are there, whether the plans fit."""
    asked = [ask_about(plan) for plan in plans]
    with _outlined(plans if sum(not is_known(one) for one in asked) > 1 else ()):
        return [replied(one) for one in asked]


@contextmanager
def _outlined(plans: Sequence[Draft]) -> Generator[None]:
    """Meanwhile, plan by plan whether it fits in memory, which is known before anything is
    simulated, and the room of the answer."""
    outline = st.empty()
    for number in range(1, len(plans) + 1):
        with outline.container():
            _outline(plans[:number])
    yield
    outline.empty()


def _outline(plans: Sequence[Draft]) -> None:
    """Whether plans fit in memory, and the room of the answer."""
    found = [(plan, checked(ask_about(plan))) for plan in plans]
    lines = [
        f"**{plan.title}**: {' '.join(one.sentences)}"
        for plan, one in found
        if isinstance(one, Check)
    ]
    if lines:
        st.info("  \n".join(lines), icon=":material/hourglass_top:")
    st.skeleton(_ROOM)


def _titled(found: Reply, plan: Draft) -> Reply:
    """The reply under the plan's title: an edited scenario never passes for the original."""
    return replace(found, now=titled(found.now, plan)) if isinstance(found.now, Run) else found


def titled(run: Run, plan: Draft) -> Run:
    """The answer under the plan's title."""
    return replace(run, report=replace(run.report, name=plan.title))


def ask_about(plan: Draft) -> Question:
    """The question of a plan."""
    return question(session.known(), plan.scenario, plan.text, plan.sets)


def step_view(shown: OpenPlan) -> OpenPlan:
    """The same plan with the answer to its training step, where the scenario is of more."""
    scenario = scenario_of(shown.asked)
    if isinstance(scenario, Failure) or kind_of(scenario).scope(scenario) is None:
        return shown
    asked = replace(shown.asked, step_only=True)
    return replace(shown, asked=asked, has_baseline=False)


def refused(verb: Verb, scenario: Any) -> bool:
    """Whether a verb does not apply to a scenario; the page says why."""
    kind = kind_of(scenario)
    if verb not in kind.refusals:
        return False
    st.info(f"This does not apply to {kind.title}: {kind.refusals[verb]}.", icon=":material/block:")
    return True


def say_scope(scenario: Any) -> None:
    """That this answers the training step of a scenario that is of more."""
    if (words := kind_of(scenario).scope(scenario)) is not None:
        st.caption(f":material/info: This section answers {words}")


def lean(plan: Draft) -> Draft:
    """The plan without edits that change nothing: those to what its file says anyway."""
    for path, _ in plan.edits:
        less = plan.without(path)
        mine, other = scenario_of(ask_about(plan)), scenario_of(ask_about(less))
        if isinstance(mine, Failure) or isinstance(other, Failure):
            continue
        if resolved(mine) == resolved(other):
            plan = less
    return plan


def answered(shown: OpenPlan, meanwhile: Callable[[], None] = lambda: None) -> Run | None:
    """The answer to the open plan; where there is none yet, or none at all, the page says why.
    Before it is looked for, whether the plan fits, and what can be drawn `meanwhile`."""
    with _outlined(() if is_known(shown.asked) else (shown.plan,)):
        if isinstance(plan_of(shown.asked), Planned):
            begun(shown.asked)
        meanwhile()
        reply = shown.reply
    if reply.coming is not None:
        waiting(f"{shown.plan.title} is being simulated.", reply.coming)
        _outline([shown.plan])
    elif reply.stopped is not None:
        say_stopped("", [reply.stopped])
    elif isinstance(reply.now, Failure):
        say(shown.plan, reply.now)
    return reply.now if isinstance(reply.now, Run) else None


def say_stopped(words: str, stopped: Sequence[Stopped], again: str = "Simulate again") -> None:
    """That the visitor stopped some work, how far it was, and a button to begin it again."""
    most = max(stopped, key=lambda one: one.share)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.info(f"Stopped at {most.percent}. {words}", icon=":material/stop_circle:")
        again_button(again, words, stopped)


def again_button(label: str, name: str, stopped: Sequence[Stopped]) -> None:
    """A button that begins stopped work again; `name` tells it from others."""

    def begin() -> None:
        for one in stopped:
            one.again()

    st.button(
        label,
        icon=":material/play_arrow:",
        key=f"again {name} {id(stopped[0])}",
        type="tertiary",
        on_click=begin,
    )


def say(plan: Draft, failure: Failure) -> None:
    """Why a plan has no answer, in the words of the command line."""
    match failure:
        case Refusal(text=text):
            st.error(
                f"**{plan.title}** cannot run as written. Mend it on the page Plan; your edits are "
                "kept.",
                icon=":material/error:",
            )
            code(text)
        case Bug():
            say_failure("", failure)


def say_failure(words: str, failure: Failure) -> None:
    """That something failed, and why."""
    if isinstance(failure, Bug):
        say_bug(failure.text)
        return
    st.error(words, icon=":material/error:")
    code(failure.text)


def code(text: str) -> None:
    """Problems as the command line shows them, lines wrapped where the page is narrow."""
    st.code(text, language=None, wrap_lines=True)


def say_bug(text: str) -> None:
    """That the twin has a bug; its traceback is in the app's log."""
    st.error(
        "**This is a bug in the twin, not in your plan.** Please report it with the link of this "
        f"page. `{text}`",
        icon=":material/bug_report:",
    )


def ready(
    pending: Pending[_T | Failure], plan: Draft, words: str, patience: float = 0.05, wrong: str = ""
) -> _T | None:
    """The result of a study; while it is in the making, or where it failed, the page says so.
    `patience`: seconds that the page waits for it first; `wrong`: what it means that it failed,
    where that is not the plan's fault."""
    found = pending.within(patience)
    if found is None:
        waiting(words, pending)
        return None
    if isinstance(found, Stopped):
        if not session.has_stopped(found):
            found.again()
            st.rerun()
        say_stopped("", [found])
        return None
    if isinstance(found, Failure):
        if wrong:
            say_failure(wrong, found)
        else:
            say(plan, found)
        return None
    return found


def waiting(words: str, *pending: Pending[Any]) -> None:
    """Say in this place that work is under way, with a way to stop it. Its progress stands in the
    sidebar, and the page is drawn again when it is done."""
    for one in pending:
        session.wait_for(one, words)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(f":material/hourglass_top: {words}")
        stop_button(words, pending)


def stop_button(name: str, pending: Sequence[Pending[Any]]) -> None:
    """A button that stops some work; `name` tells it from others."""

    def stop() -> None:
        for one in pending:
            session.stop(one)

    st.button("Stop", icon=":material/stop:", key=f"stop {name}", type="tertiary", on_click=stop)
