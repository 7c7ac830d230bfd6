"""How users talk: personas, styles, and the words around a goal."""

from __future__ import annotations

from random import Random
from typing import Final

from reference.agentic.tasks.task import Persona
from reference.agentic.words import words as words_of

_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "plain": ("{g}.", "I need this done: {g}.", "I want you to {g}."),
    "polite": (
        "Good morning, could you please {g}?",
        "Hello, would you be so kind and {g}? Thank you.",
        "Hi, may I ask you to {g}? Many thanks.",
    ),
    "hurried": ("quick one: {g}", "{g}, I am in a meeting", "no time, just {g}"),
    "chatty": (
        "Hi there, it is me again, {n}. The weather is awful here. Anyway, {g}, would you?",
        "So, my colleague told me to ask you. I am {n}. What I need: {g}.",
        "Hello hello! Long day today. Before I forget, {g}. That is all for now.",
    ),
    "formal": (
        "This is {n}. I request that you {g}.",
        "On behalf of our office: {g}. Kindly confirm.",
    ),
}


def persona_of(draw: Random, terse: bool) -> Persona:
    """A user; if terse a plain one."""
    name = draw.choice(words_of("user"))
    style = draw.choice(list(_STYLES))
    patient = draw.random() < 0.5
    return Persona(name, "terse" if terse else style, patient and not terse)


def opening_words(words: str, persona: Persona, draw: Random) -> str:
    """The goal in the user's first turn."""
    if persona.style == "terse":
        return sentence(words, persona)
    form = draw.choice(_STYLES[persona.style])
    said = form.format(g=words, n=persona.name)
    return said[0].upper() + said[1:] if persona.style != "hurried" else said


def sentence(words: str, persona: Persona) -> str:
    """A goal said later."""
    if persona.style == "terse":
        return f"{words[0].upper()}{words[1:]}."
    lead = {"polite": "Thank you. Please also ", "hurried": "and also ", "formal": "Further: "}
    return f"{lead.get(persona.style, 'One more thing: ')}{words}."
