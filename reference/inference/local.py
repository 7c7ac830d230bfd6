"""Chat completions without HTTP: a `reference.generate.choose.ChatEngine` over a service here.

    engine = load_engine(folder, EngineSpec())
    generator = Engine(LocalChat(Service(engine), "nano"))       # a reference.generate Generator
    free = Engine(LocalChat(Service(engine), "nano", constrained=False))

Without `constrained` no grammar holds the answer: calls are what parses between markers, and
`Reply.raw` has all that was written, markers spelled out (`template.segments_of` cuts it).

An engine from the folder of a training run: its newest checkpoint, and its tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from reference.config import RunSpec, load_run
from reference.convert.folder import Trained, config_of, is_trained
from reference.inference.engine import (
    DrainingError,
    Engine,
    EngineFailedError,
    Service,
    put_weights,
)
from reference.inference.openai.api import OpenAiApi
from reference.inference.openai.body import ApiError
from reference.inference.request import RefusedError
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.text.prepare import prepare
from reference.text.tokenizer import Vocabulary
from twin.errors import Problem, UsageError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}


def load_engine(folder: Path, spec: EngineSpec, precision: str | None = None) -> Engine:
    """The engine of a run's folder, or of one of its checkpoints, in `precision` or that of the
    run. Raises UsageError TW491 where there is no run, and what reading its parts raises."""
    if not is_trained(folder):
        message = f"`{folder}` is no run of `python -m reference.train`"
        fix = "name the run's folder, `train.output`"
        raise UsageError([Problem("TW491", "checkpoint", message, fix)])
    run = _run(folder)
    found = Trained(folder)
    model = Transformer(found.model, dtype=DTYPES[precision or run.train.precision])
    put_weights(model, {name: found.read(name) for name in found.stored})
    # The run's own: found in its cache by the text's content, or trained on that text again.
    tokenizer = prepare(run.data, run.model.vocab).tokenizer
    return Engine(model, Vocabulary(tokenizer, found.model.vocab), spec)


def _run(folder: Path) -> RunSpec:
    """What the run was."""
    config = config_of(folder)
    if not config.is_file():
        message = f"`{config.parent}` holds no `{config.name}`, which names the tokenizer's text"
        raise UsageError([Problem("TW491", "checkpoint", message, "name the run's folder")])
    return load_run(config)


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
