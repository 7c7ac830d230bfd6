"""A template on a role of its own: how long each step lasts when nothing but the template's other
steps is on its links and its SMs."""

from __future__ import annotations

from dataclasses import replace

from twin.engine.events import play
from twin.engine.graph import template_graph
from twin.engine.program import Program, Template


def played_alone(template: Template, program: Program) -> tuple[int, ...]:
    """Nanoseconds from start to end of every step."""
    played = play(template_graph(template, program), replace(program, roles=program.roles[:1]))
    return tuple(end - start for start, end in zip(played.start, played.end, strict=True))
