"""The assistant's message as a constraint: text, then perhaps calls in K2's template whose
arguments fulfil their tool's schema (the report's "enforcer", arXiv:2507.20534, appendix B), or
JSON of one schema.

Under `auto` the model decides whether a section of calls begins; under `required` it begins at
once; a named function is called once. Names, indices and arguments leave no other choice than the
tools do, so a call that is closed parses and validates, whatever the weights.

Legend: W words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from reference.dialog import call_id
from reference.inference.grammar.machine import (
    Machine,
    State,
    branches,
    choice_machine,
    value_machine,
)
from reference.inference.grammar.schema import Node
from reference.text.template import (
    ARGUMENTS,
    CALL,
    CALL_END,
    CALLS,
    CALLS_END,
    END,
)
from reference.text.vocabulary import Vocabulary

Calls = Literal["none", "may", "must"]


class Speech:
    """Masks over a vocabulary that all messages share; one per engine."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        pieces = [vocabulary.piece(word) for word in range(vocabulary.words)]
        self.tree = branches(pieces)
        self.text_W = torch.tensor([bool(piece) for piece in pieces])
        self._only: dict[tuple[tuple[str, ...], bool], Tensor] = {}
        self._machines: dict[int, tuple[Node, Machine]] = {}

    def machine(self, node: Node) -> Machine:
        """The machine of a node, the same for the same node."""
        if id(node) not in self._machines:
            made = value_machine(node, self.tree, self.vocabulary.words)
            self._machines[id(node)] = (node, made)  # held, so that no other has its id
        return self._machines[id(node)][1]

    def only(self, *markers: str, end: bool = False) -> Tensor:
        """These markers, perhaps the end of a document, [W]; not to be changed."""
        asked = (markers, end)
        if asked not in self._only:
            made = torch.zeros(self.vocabulary.words, dtype=torch.bool)
            for name in markers:
                made[self.vocabulary.markers[name]] = True
            made[self.vocabulary.end] = end
            self._only[asked] = made
        return self._only[asked]


@dataclass(frozen=True)
class Rules:
    """What one answer may hold."""

    speech: Speech
    tools: Mapping[str, Node]
    """Schemas of the arguments by name."""
    calls: Calls
    first_call: int = 0
    """Calls of the dialog so far."""
    most_calls: int | None = None
    json: Node | None = None
    """The answer is JSON of this schema, if it calls no tool."""

    def head(self, number: int) -> Machine:
        """`functions.NAME:INDEX` of the answer's call `number`."""
        index = self.first_call + number
        options = [call_id(name, index) for name in self.tools]
        return choice_machine(options, self.speech.tree, self.speech.vocabulary.words)

    def ends(self) -> Tensor:
        """What ends a message, [W]."""
        return self.speech.only(END, end=True)


@dataclass(frozen=True)
class Answer:
    """A place in an answer: a `Constraint`. `inside` is `text`, `json`, `must` (a section of calls
    has to begin), or the marker that came last."""

    rules: Rules
    inside: str
    machine: Machine | None = None
    """Of the head, arguments or JSON that it stands in, with the state there."""
    state: State | None = None
    head: bytes = b""
    closed: int = 0
    """Calls that are closed."""

    @property
    def structured(self) -> bool:
        """Whether it stands in calls or JSON."""
        return self.inside != "text"

    def allowed(self) -> Tensor:
        """Which words may come next, [W]."""
        rules, speech = self.rules, self.rules.speech
        found_W = torch.zeros_like(speech.text_W)
        complete = False
        if self.machine is not None and self.state is not None:
            found_W, complete = self.machine.allowed(self.state), self.state.complete
        if self.inside == "text":
            return speech.text_W | rules.ends() | self._opens()
        if self.inside == "json":
            begun = self.machine is not None and self.state is not self.machine.start
            more_W = found_W if begun else found_W | self._opens()
            return more_W | rules.ends() if complete else more_W
        if self.inside in (CALL, ARGUMENTS):
            closes = ARGUMENTS if self.inside == CALL else CALL_END
            return found_W | speech.only(closes) if complete else found_W
        if self.inside == CALL_END:
            more = rules.most_calls is None or self.closed < rules.most_calls
            return speech.only(*((CALL, CALLS_END) if more else (CALLS_END,)))
        if self.inside == CALLS_END:
            return rules.ends()
        return speech.only(CALL if self.inside == CALLS else CALLS)

    def after(self, token: int) -> Answer:
        """After an allowed word."""
        name = self.rules.speech.vocabulary.marker(token)
        if name is None:
            if self.machine is None or self.state is None:
                return self
            piece = self.rules.speech.vocabulary.piece(token)
            state = self.machine.after(self.state, piece)
            return replace(self, state=state, head=self.head + piece)
        if name == CALL:
            return self._enters(CALL, self.rules.head(self.closed))
        if name == ARGUMENTS:
            called = self.head.decode().removeprefix("functions.").rpartition(":")[0]
            return self._enters(ARGUMENTS, self.rules.speech.machine(self.rules.tools[called]))
        closed = self.closed + (name == CALL_END)
        return Answer(self.rules, name, closed=closed)

    def _enters(self, inside: str, machine: Machine) -> Answer:
        return Answer(self.rules, inside, machine, machine.start, closed=self.closed)

    def _opens(self) -> Tensor:
        speech = self.rules.speech
        may = self.rules.calls == "may" and bool(self.rules.tools)
        return speech.only(CALLS) if may else torch.zeros_like(speech.text_W)


def begin(rules: Rules) -> Answer:
    """Before the first word of an answer."""
    if rules.calls == "must":
        return Answer(rules, "must")
    if rules.json is not None:
        machine = rules.speech.machine(rules.json)
        return Answer(rules, "json", machine, machine.start)
    return Answer(rules, "text")
