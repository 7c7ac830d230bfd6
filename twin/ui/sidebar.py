"""The sidebar beside every page: the open plan, its baseline, the verdict, and how to share it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from twin.answers import Run
from twin.interop.export.base import format_of, render
from twin.loading import resolve
from twin.ui import session
from twin.ui.answers import Failure, Reply, scenario_of
from twin.ui.background import Progress
from twin.ui.links import COMFORTABLE, address
from twin.ui.parts import changes, metrics
from twin.ui.place import OpenPlan, again_button, open_plan, step_view, stop_button
from twin.ui.scenarios import ScenarioFiles, shared_text
from twin.ui.session import widget_key
from twin.ui.workspace import MOST_PLANS, Workspace, difference

_PLAN: Final = "open plan"
_BASELINE: Final = "baseline"
_NAME: Final = "name of the plan"
_SHARE: Final = "Share"
_EXPORT: Final = "Export"
_HEADLINE: Final = 4
"""Key figures beside every page."""
_POLL: Final = 0.5
"""Seconds between two looks at the work in the background."""
_ORIGINAL: Final = -1
"""Stands for the open plan's scenario without its edits."""
_FORMATS: Final = {
    "html": "Report (HTML)",
    "megatron": "Launch script (Megatron-LM)",
    "perfetto": "Timeline (Perfetto)",
    "csv": "Tables (CSV)",
}
"""The formats that planners hand on; the command `twin export` has all of them."""


def sidebar(page: str) -> DeltaGenerator:
    """Draw the sidebar; returns its place for the progress of background work."""
    shown = open_plan()
    with st.sidebar:
        _plans(shown.workspace)
        with st.container():  # as long as it is, what follows keeps its place
            _verdict(shown)
        with st.container(horizontal=True, gap="xsmall"):
            _manage(shown.workspace)
            _take_along(shown, page)
        _steps()
        changes(shown.plan)
        return st.container()  # last: what comes and goes moves no button under a click


@st.fragment(run_every=_POLL)
def awaiting() -> None:
    """The progress of everything that the page waits for, and a way to stop it; when a work is
    done, the whole page is drawn again. One timer for all: several would starve each other."""
    for pending, words in session.awaited():
        if pending.future.done():
            st.rerun()
        st.progress(min(1.0, pending.progress.share), f"{words} {_left(pending.progress)}")
    stop_button("all", [pending for pending, _ in session.awaited()])


def _left(progress: Progress) -> str:
    """How far a work is, and how long it will still take."""
    if progress.begun is None:
        return "It waits for other work."
    left = "" if progress.left is None else f", about {max(1, round(progress.left))} s left"
    return f"{100 * progress.share:.0f} %{left}."


def _steps() -> None:
    """Undo and redo, each with what it would change. Ctrl+Z stays with the text that is typed."""
    history = session.history()
    if not history.past and not history.undone:
        return
    with st.container(horizontal=True):
        _step("Undo", "Alt+Z", history.past, session.undo)
        _step("Redo", "Alt+Shift+Z", history.undone, session.redo)


def _step(title: str, shortcut: str, ways: Sequence[Workspace], go: Callable[[], None]) -> None:
    now = session.workspace()
    st.button(
        title,
        type="tertiary",
        icon=f":material/{title.lower()}:",
        on_click=go,
        disabled=not ways,
        shortcut=shortcut,
        help=f"{title}: {difference(ways[-1], now)}" if ways else None,
    )


def _plans(workspace: Workspace) -> None:
    """The choice of the open plan and of the baseline."""
    names = {at: plan.title for at, plan in enumerate(workspace.plans)}
    key = widget_key(_PLAN, workspace.shown, names.values())
    st.selectbox(
        "Plan",
        list(names),
        workspace.shown,
        format_func=names.__getitem__,
        key=key,
        on_change=_open,
        args=(key,),
    )
    baseline = _ORIGINAL if workspace.baseline is None else workspace.baseline
    choices = [_ORIGINAL, *names]
    labels = {_ORIGINAL: f"{workspace.open.scenario} (original)"} | names
    key = widget_key(_BASELINE, baseline, labels.values())
    st.selectbox(
        "Baseline",
        choices,
        choices.index(baseline),
        format_func=labels.__getitem__,
        key=key,
        on_change=_compare_with,
        args=(key,),
        help="Changes on every page are against the baseline.",
    )


def _verdict(shown: OpenPlan) -> None:
    """The verdict in three words, and the headline figures."""
    now = shown.reply.now
    if isinstance(now, Failure):
        st.badge("Invalid", icon=":material/error:", color="red")
        return
    with st.container(horizontal=True):
        _badges(shown.reply)
    if now is not None:
        st.caption(f"{now.kind.title[:1].upper()}{now.kind.title[1:]}")
        headline = now.kind.deciding(now.report)[:_HEADLINE]
        for at in range(0, len(headline), 2):
            metrics(shown, headline[at : at + 2], "content")
    _coming(shown)


def _coming(shown: OpenPlan) -> None:
    """What is still being simulated, and a way to begin again what was stopped."""
    for one, words in ((shown.reply, "The open plan"), (shown.reference, "The baseline")):
        if one is not None and one.coming is not None:
            session.wait_for(one.coming, f"{words} is being simulated.")
    if shown.stopped and shown.reply.stopped is None:
        st.caption(f"The simulation of the baseline was stopped at {shown.stopped[0].percent}.")
    if shown.stopped:
        again_button("Simulate again", "beside every page", shown.stopped)


def _badges(reply: Reply) -> None:
    """Whether the plan fits, and how sure that is."""
    now = reply.now
    if isinstance(now, Run) and now.report.may_differ:
        words = "Fits, uncertain" if now.report.fits else "Does not fit, uncertain"
        st.badge(words, icon=":material/help:", color="orange")
    elif isinstance(now, Run) and now.report.fits:
        st.badge("Fits", icon=":material/check_circle:", color="green")
    elif now is not None:
        st.badge("Does not fit", icon=":material/block:", color="red")
    if reply.coming is not None:
        st.badge("simulating", icon=":material/speed:", color="orange")
    if reply.stopped is not None:
        words = f"stopped at {reply.stopped.percent}"
        st.badge(words, icon=":material/stop_circle:", color="orange")


def _manage(workspace: Workspace) -> None:
    """Variants of the open plan: duplicate, rename, remove."""
    with st.popover("Variants"):
        st.button(
            "Duplicate as a variant",
            on_click=_duplicate,
            disabled=len(workspace.plans) >= MOST_PLANS,
            help=f"A copy of this plan to edit beside it; up to {MOST_PLANS} plans.",
            width="stretch",
        )
        name = workspace.open.name
        key = widget_key(_NAME, name)
        st.text_input("Name of this plan", name, key=key, on_change=_rename, args=(key,))
        st.button(
            "Remove this plan",
            on_click=_remove,
            disabled=len(workspace.plans) == 1,
            width="stretch",
        )


@st.fragment
def _take_along(shown: OpenPlan, page: str) -> None:
    """Share and export, each made when it is opened: while a page is being drawn, the sidebar of
    the page before still stands beside it, and would give out that page's link."""
    with st.container(horizontal=True, gap="xsmall"):
        for name in (_SHARE, _EXPORT):
            box = st.popover(name, key=name, on_change="rerun")
            if not box.open:
                continue
            with box:
                if name == _SHARE:
                    _share(shown.workspace, page)
                else:
                    _export(shown)


def _share(workspace: Workspace, page: str) -> None:
    """The link that opens the same page with the same plans elsewhere."""
    whole = portable(workspace, session.known())
    link = address(st.context.url or "", whole, session.shown_section(page))
    st.markdown("This link opens the same page, with all plans and edits:")
    st.code(link, language=None, wrap_lines=True, height=120)
    if len(link) > COMFORTABLE:
        st.caption(
            f"The link has {len(link):,} characters. Some programs cut links of more than "
            f"{COMFORTABLE:,}. To be safe, export the scenario and send the file."
        )


def portable(workspace: Workspace, known: ScenarioFiles) -> Workspace:
    """The workspace with the text of scenarios that only this app knows."""
    plans = (
        replace(plan, text=shared_text(known, plan.scenario)) if plan.text is None else plan
        for plan in workspace.plans
    )
    return replace(workspace, plans=tuple(plans))


def _export(shown: OpenPlan) -> None:
    """The open plan as files, each made when it is asked for."""
    scenario, now = scenario_of(shown.asked), shown.reply.now
    if isinstance(scenario, Failure):
        st.caption("An invalid plan cannot be exported. Its link can be shared.")
        return
    _button("Scenario (YAML)", lambda: resolve(scenario).encode(), f"{shown.plan.name}.yaml")
    if not isinstance(now, Run) or "export" in now.kind.refusals:
        return
    if now.kind.scope(scenario) is not None:
        now = step_view(shown).reply.now
        st.caption("Files hold the training step.")
    if not isinstance(now, Run):
        return
    for name, label in _FORMATS.items():
        data, suffix = _file(now, name)
        _button(label, data, f"{shown.plan.name}{suffix}")


def _file(run: Run, name: str) -> tuple[Callable[[], bytes], str]:
    """What makes the file of a format, and how its name ends; several files come as one archive."""
    kind = format_of(name)
    single = name != "csv"

    def data() -> bytes:
        made = render(run, name)
        return made[""] if single else _archive(run.report.hash, kind.SUFFIX, made)

    return data, kind.SUFFIX if single else ".zip"


def _archive(stem: str, suffix: str, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, data in files.items():
            archive.writestr(f"{stem}{part}{suffix}", data)
    return packed.getvalue()


def _button(label: str, data: Callable[[], bytes], name: str) -> None:
    st.download_button(label, data, name, on_click="ignore", width="stretch")


def _open(key: str) -> None:
    at: int = st.session_state[key]
    session.change(lambda on: replace(on, shown=at))


def _compare_with(key: str) -> None:
    at: int = st.session_state[key]
    session.change(lambda on: replace(on, baseline=None if at == _ORIGINAL else at))


def _duplicate() -> None:
    session.change(lambda on: on.added(on.open))


def _rename(key: str) -> None:
    session.change(lambda on: on.renamed(st.session_state[key]))


def _remove() -> None:
    session.change(lambda on: on.removed(on.shown))
