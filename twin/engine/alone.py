"""A template on a role of its own: how long each step lasts when nothing is on its links and its
SMs but the template's other steps and what templates before it have left under way."""

from __future__ import annotations

from dataclasses import replace

from twin.engine.events import Played, play
from twin.engine.graph import template_graph
from twin.engine.program import Program, Template


def played_alone(template: Template, program: Program, beside: Template = ()) -> tuple[int, ...]:
    """Nanoseconds from start to end of every step, with those `beside` it under way from the start
    on."""
    played = _play((*template, *beside), program)
    times = zip(played.start, played.end, strict=True)
    return tuple(end - start for start, end in times)[: len(template)]


def played_after(late: Template, template: Template, program: Program) -> list[tuple[int, int]]:
    """Nanoseconds after its start at which every step starts and ends, first of what is `late`:
    under way or queued already, each in its stream before the template's own."""
    moved = (
        replace(step, after=tuple(place + len(late) for place in step.after)) for step in template
    )
    played = _play((*late, *moved), program)
    return [*zip(played.start, played.end, strict=True)]


def length_alone(template: Template, program: Program) -> int:
    """Nanoseconds until its last step has ended."""
    return max(_play(template, program).end, default=0)


def _play(template: Template, program: Program) -> Played:
    return play(template_graph(template, program), replace(program, roles=program.roles[:1]))
