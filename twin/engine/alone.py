"""A template on a role of its own: how long each step lasts when nothing but the template's other
steps is on its links and its SMs, and the copies that go beside it between device and host."""

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


def length_alone(template: Template, program: Program) -> int:
    """Nanoseconds until its last step has ended."""
    return max(_play(template, program).end, default=0)


def _play(template: Template, program: Program) -> Played:
    return play(template_graph(template, program), replace(program, roles=program.roles[:1]))
