"""Between tokens and messages: what a prompt is, what the assistant said, what it is told next.

Only what others say is encoded here, once, as the template writes it. What the model wrote stays
the ids that it drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reference.dialog import Dialog, Message, calls_of
from reference.rl.records import Response
from reference.text.template import END, parse_answer, render
from reference.text.vocabulary import Vocabulary


def opening(words: Vocabulary, dialog: Dialog) -> tuple[int, ...]:
    """The ids of a task's opening, up to where the assistant's words begin."""
    return tuple(words.ids(render(dialog, ask=True)))


def ends_message(words: Vocabulary) -> frozenset[int]:
    """The ids that end an assistant's message, beside the end of a document."""
    return frozenset({words.markers[END]})


def said(words: Vocabulary, response: Response) -> Dialog:
    """The dialogue with what the assistant wrote last, whole or cut."""
    ids = response.tokens[response.turn :]
    message = parse_answer(words.segments(ids), calls_of(response.dialog.messages))
    return replace(response.dialog, messages=(*response.dialog.messages, message))


def told(words: Vocabulary, messages: Sequence[Message]) -> list[int]:
    """The ids of what tools or the user answer, up to where the assistant's next words begin."""
    return words.ids(render(Dialog(tuple(messages)), ask=True))
