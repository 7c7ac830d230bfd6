"""Chat completions without HTTP: a `reference.generate.choose.ChatEngine` over a service here.

    engine = load_engine(folder, EngineSpec())
    generator = Engine(LocalChat(Service(engine), "nano"))       # a reference.generate Generator
    free = Engine(LocalChat(Service(engine), "nano", constrained=False))

Without `constrained` no grammar holds the answer: calls are what parses between markers, and
`Reply.raw` has all that was written, markers spelled out (`template.segments_of` cuts it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference.inference.load import load_engine
from reference.inference.openai.api import OpenAiApi
from reference.inference.openai.body import ApiError
from reference.inference.request import RefusedError
from reference.inference.service import DrainingError, EngineFailedError, Service
from reference.inference.spec import EngineSpec
from twin.errors import Problem, UsageError

_WAIT = 0.01
"""Seconds until a full queue is asked again."""


class LocalChat:
    """Answers bodies of chat completions; safe to call from several threads. A body's `model` is
    not read: there is one."""

    def __init__(self, service: Service, name: str, *, constrained: bool = True) -> None:
        self.service, self.name = service, name
        self._api = OpenAiApi(service, name)
        self._fields = {"model": name, "constrained": constrained, "return_raw": True}

    @property
    def capacity(self) -> int:
        """Tokens of a prompt with its answer, at most."""
        return self._api.served.capacity

    def chat(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The whole answer. Raises UsageError (TW550 to TW552), as over HTTP."""
        with _told(), self._begin(body) as (answer, updates, _):
            return answer.whole(updates)

    def chat_stream(self, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """The same as chunks."""
        with _told(), self._begin({**body, "stream": True}) as (answer, updates, _):
            yield from answer.chunks(updates)

    @contextmanager
    def _begin(self, body: Mapping[str, Any]) -> Iterator[Any]:
        """The begun answer. A full queue empties: callers of this process wait."""
        request = self._api.read_chat({**body, **self._fields})
        with self._api.begin(request, wait=_WAIT) as begun:
            yield begun


@contextmanager
def _told() -> Iterator[None]:
    """The engine's refusals as errors for users, with the codes of `reference.generate.server`."""
    try:
        yield
    except (ApiError, RefusedError) as error:
        long = "context" in str(error).lower()
        failed = isinstance(error, ApiError) and error.status >= 500
        code = "TW550" if failed else "TW552" if long else "TW551"
        hint = "shorten the dialogue, or lower max_tokens" if long else "change the request"
        message = f"the engine refuses: {error}"
        raise UsageError([Problem(code, "generator", message, hint)]) from None
    except (DrainingError, EngineFailedError) as error:
        message = f"the engine serves no more ({type(error).__name__})"
        raise UsageError([Problem("TW550", "generator", message, "start it again")]) from None


def open_run(folder: str) -> LocalChat:
    """The model of a training run's folder. Raises UsageError (TW491) where there is none."""
    path = Path(folder)
    return LocalChat(Service(load_engine(path, EngineSpec())), path.absolute().name)
