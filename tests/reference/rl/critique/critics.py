"""Rule-based critics that read what they are asked as a model does."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reference.generate.request import ChatRequest, Reply, ReplyPiece, Tokens
from reference.rl.critique.ranking import Rubric

INTENT = Rubric(name="intent", asks="It is better.")
ANSWER = re.compile(r'^([AB]): (".*")$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Judges:
    """Says which answer some function of rubric and text finds larger; `bias` is added to the
    first."""

    quality: Callable[[str, str], float]
    bias: float = 0.0
    asked: list[str] = field(default_factory=list[str])

    def complete(self, request: ChatRequest) -> Reply:
        text = request.messages[-1].content
        self.asked.append(text)
        rubric = text.splitlines()[0].partition("? ")[2]
        found = {name: json.loads(said) for name, said in ANSWER.findall(text)}
        first, second = (self.quality(rubric, found[name]) for name in "AB")
        said = "A" if first + self.bias > second else "B"
        return Reply(said, (), Tokens(None, None), "stop")

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        yield ReplyPiece("", self.complete(request))
