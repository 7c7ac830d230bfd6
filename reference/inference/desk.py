"""Bodies read and answered over one engine: what HTTP and callers in this process share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from reference.inference.answers import Answer
from reference.inference.grammar.answer import Speech
from reference.inference.openai.asked import Asked, Host
from reference.inference.openai.chat import read_chat
from reference.inference.openai.completion import read_completion
from reference.inference.request import Update
from reference.inference.service import Service, Stream


class Desk:
    """A service under a model's name."""

    def __init__(self, service: Service, name: str) -> None:
        self.service = service
        seeds = count()
        vocabulary = service.engine.vocabulary
        capacity = service.engine.scheduler.capacity
        self.host = Host(name, vocabulary, capacity, lambda: next(seeds))
        self._speech = Speech(vocabulary)

    def read_chat(self, body: Any) -> Asked:
        """What a body of chat completions asks for. Raises ApiError."""
        return read_chat(body, self.host, self._speech)

    def read_completion(self, body: Any) -> Asked:
        """What a body of completions asks for. Raises ApiError."""
        return read_completion(body, self.host)

    @contextmanager
    def begin(
        self, asked: Asked, gone: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[Answer, Iterator[Update], Stream]]:
        """The answer, its updates until nobody reads on, and their stream; cancelled at the end if
        it is not over. Raises what `Service.submit` does."""
        stream = self.service.submit(asked.request)
        try:
            yield Answer(self.host.vocabulary, asked, stream), stream.read(gone), stream
        finally:
            self.service.cancel(stream)
