"""The workspace: the plans that a visitor works on, as frozen data.

A link carries all of it: the scenario of each plan, its edits as typed, the open plan and the
baseline."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

MOST_PLANS: Final = 8
"""Plans in a workspace: as many as a comparison can show side by side."""
MOST_STEPS: Final = 100
"""Changes that can be undone."""
_NUMBERED = re.compile(r" \((\d+)\)$")


@dataclass(frozen=True, slots=True)
class Draft:
    """One plan: a scenario under edits.

    `scenario` is one that the app knows by name; where `text` is given, it is the name of a file
    whose text the visitor brought. An edit is a dotted path with the value as typed, as `--set`
    takes it."""

    name: str
    scenario: str
    text: str | None = None
    edits: tuple[tuple[str, str], ...] = ()

    @property
    def sets(self) -> tuple[str, ...]:
        """The edits as arguments of `--set`: outer sections first, since a catalog name replaces
        all that was below it."""
        ordered = sorted(self.edits, key=lambda edit: edit[0].count("."))
        return tuple(f"{path}={value}" for path, value in ordered)

    @property
    def title(self) -> str:
        """The name in figures and tables; an edited scenario never passes for the original."""
        return f"{self.name} (edited)" if self.edits and self.name == self.scenario else self.name

    @property
    def described(self) -> str:
        """The scenario with every edit: `a (pipeline 8, nodes 128)`."""
        words = ", ".join(f"{_last(path)} {value}" for path, value in self.edits)
        return f"{self.scenario} ({words})" if words else self.scenario

    @property
    def original(self) -> Draft:
        """The scenario without the edits."""
        return Draft(self.scenario, self.scenario, self.text)

    def edited(self, path: str, value: str, *, forget: str = "") -> Draft:
        """The plan under one more edit, in the place of an earlier one of the same field. Edits of
        fields below `forget` go: they were settings of another kind."""
        kept = [edit for edit in self.edits if not (forget and edit[0].startswith(f"{forget}."))]
        if path in dict(kept):
            return replace(self, edits=tuple((p, value if p == path else v) for p, v in kept))
        return replace(self, edits=(*kept, (path, value)))

    @property
    def reset(self) -> Draft:
        """The plan without its edits, under its own name."""
        return replace(self, edits=())

    def without(self, path: str) -> Draft:
        """The plan without the edit of one field."""
        return replace(self, edits=tuple(edit for edit in self.edits if edit[0] != path))


@dataclass(frozen=True, slots=True)
class Workspace:
    """The plans, the index of the open one, and the index of the baseline; None: the open plan's
    scenario as it was before the edits."""

    plans: tuple[Draft, ...]
    shown: int = 0
    baseline: int | None = None

    @property
    def open(self) -> Draft:
        """The plan that every page shows."""
        return self.plans[self.shown]

    @property
    def reference(self) -> Draft:
        """The plan that the others are compared with."""
        return self.open.original if self.baseline is None else self.plans[self.baseline]

    @property
    def compared(self) -> tuple[Draft, ...]:
        """The baseline, then every other plan, in their order."""
        others = (plan for plan in self.plans if _questions(plan) != _questions(self.reference))
        return (self.reference, *others)

    def changed(self, change: Callable[[Draft], Draft]) -> Workspace:
        """The workspace with a change made to the open plan."""
        at = self.shown
        return replace(
            self, plans=(*self.plans[:at], change(self.plans[at]), *self.plans[at + 1 :])
        )

    def added(self, plan: Draft, *, show: bool = True) -> Workspace:
        """The workspace with one more plan under a free name; the oldest that is neither open nor
        baseline makes room in a full workspace."""
        space = self
        if len(space.plans) >= MOST_PLANS:
            in_use = {space.shown, space.baseline}
            space = space.removed(next(at for at in range(MOST_PLANS) if at not in in_use))
        named = replace(plan, name=free_name(plan.name, [one.name for one in space.plans]))
        plans = (*space.plans, named)
        return replace(space, plans=plans, shown=len(plans) - 1 if show else space.shown)

    def removed(self, at: int) -> Workspace:
        """The workspace without a plan; the last one stays."""
        if len(self.plans) == 1:
            return self
        baseline = self.baseline
        if baseline is not None:
            baseline = None if baseline == at else baseline - (baseline > at)
        shown = min(self.shown - (self.shown > at), len(self.plans) - 2)
        return Workspace((*self.plans[:at], *self.plans[at + 1 :]), shown, baseline)

    def renamed(self, name: str) -> Workspace:
        """The workspace with another name for the open plan; an empty one changes nothing."""
        others = [plan.name for at, plan in enumerate(self.plans) if at != self.shown]
        wanted = " ".join(name.split())[:80]
        if not wanted:
            return self
        return self.changed(lambda plan: replace(plan, name=free_name(wanted, others)))

    def opened(self, plan: Draft, *more: Draft) -> Workspace:
        """The workspace with another scenario open: in the place of the open plan where that has no
        edits, beside it where edits would be lost; and `more` beside it."""
        if more:
            space = self.opened(plan)
            for one in more:
                space = space.added(one, show=False)
            return space
        untouched = not self.open.edits and self.open.text is None
        if not untouched or self.baseline == self.shown:
            return self.added(plan)
        others = [one.name for at, one in enumerate(self.plans) if at != self.shown]
        return self.changed(lambda _: replace(plan, name=free_name(plan.name, others)))


@dataclass(frozen=True, slots=True)
class History:
    """The workspace with those before it, newest last, and those that were undone, newest last."""

    now: Workspace
    past: tuple[Workspace, ...] = ()
    undone: tuple[Workspace, ...] = ()

    def changed(self, to: Workspace) -> History:
        """The history with one more workspace; one that says the same is no change."""
        if to == self.now:
            return self
        return History(to, (*self.past, self.now)[-MOST_STEPS:])

    def back(self) -> History:
        """The history before its last change; the same where there is none."""
        if not self.past:
            return self
        return History(self.past[-1], self.past[:-1], (*self.undone, self.now))

    def forward(self) -> History:
        """The history with the last undone change made again; the same where there is none."""
        if not self.undone:
            return self
        return History(self.undone[-1], (*self.past, self.now), self.undone[:-1])


def difference(before: Workspace, after: Workspace) -> str:
    """What leads from one workspace to the other, for people: `nodes 128 on kimi-k2-256xh800`."""
    old = {plan.name: plan for plan in before.plans}
    new = {plan.name: plan for plan in after.plans}
    if set(old) != set(new):
        gone, come = ", ".join(sorted(set(old) - set(new))), ", ".join(sorted(set(new) - set(old)))
        if gone and come:
            return f"{gone} became {come}"
        return f"{come} added" if come else f"{gone} removed"
    for name, plan in new.items():
        was, now = dict(old[name].edits), dict(plan.edits)
        edits = [f"{_last(path)} {value}" for path, value in now.items() if was.get(path) != value]
        edits += [f"{_last(path)} as in the scenario" for path in was if path not in now]
        if edits:
            return f"{', '.join(edits)} on {name}"
        if plan != old[name]:
            return f"the scenario of {name}"
    return "the open plan" if before.shown != after.shown else "the baseline"


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where it is taken: `a`, `a (2)`, `a (3)`."""
    stem, number = _NUMBERED.sub("", name), 2
    while name in taken:
        name, number = f"{stem} ({number})", number + 1
    return name


def varied(plan: Draft, overrides: Mapping[str, str], name: str) -> Draft:
    """The plan under further edits and another name."""
    for path, value in overrides.items():
        plan = plan.edited(path, value)
    return replace(plan, name=name)


def _last(path: str) -> str:
    """What a field is called for short."""
    return path.removesuffix(".kind").rpartition(".")[2].replace("_", " ")


def _questions(plan: Draft) -> tuple[str, str | None, Sequence[str]]:
    """What is asked of the twin: the plan without its name."""
    return plan.scenario, plan.text, plan.sets
