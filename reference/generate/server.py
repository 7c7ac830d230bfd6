"""A generator over any OpenAI-compatible server: timeouts, retries, limits, accounts.

The longest wait doubles with each attempt, and the wait is drawn between 0 and that ("full jitter":
Brooker, "Exponential backoff and jitter", AWS Architecture Blog, 2015). A server's own wait is
obeyed. A stream is not retried after its first text, since the text would come twice.
"""

from __future__ import annotations

import email.utils
import hashlib
import http.client
import json
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import Field

from reference.generate import chat
from reference.generate.request import Account, ChatRequest, Prices, Reply, ReplyPiece
from twin.errors import Problem, UsageError
from twin.spec.base import Count, Duration, Spec

T = TypeVar("T")
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses worth another attempt (RFC 9110, RFC 6585; 529: overloaded APIs)."""


class ServerSpec(Spec):
    """A server, its timeouts, limits and prices."""

    url: str
    """address with `/v1`, such as http://localhost:8000/v1"""
    model: str = "default"
    """name of the model"""
    key_variable: str | None = None
    """environment variable with the API key [default: no key]"""
    at_once: Count = 8
    """parallel requests"""
    attempts: Count = 5
    """attempts for one request"""
    first_wait: Duration = 0.5
    """longest wait before the second attempt"""
    longest_wait: Duration = 60.0
    """longest wait of all"""
    connect: Annotated[Duration, Field(gt=0)] = 10.0
    """seconds to connect"""
    read: Annotated[Duration, Field(gt=0)] = 120.0
    """seconds without a byte"""
    total: Annotated[Duration, Field(gt=0)] = 600.0
    """seconds in all"""
    prices: Prices = Prices()
    """prices of its tokens"""


class AttemptError(Exception):
    """A failed attempt: error code, message, fix, and whether another attempt may help, after
    `wait_s` seconds if the server says so."""

    def __init__(
        self, code: str, message: str, hint: str, *, again: bool, wait_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint
        self.again, self.wait_s = again, wait_s


@dataclass(frozen=True, slots=True)
class Clocks:
    """Timeouts in seconds: to connect, between two bytes, for the whole request."""

    connect_s: float
    read_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An HTTP answer that is read within the timeouts."""

    response: http.client.HTTPResponse
    socket: Any
    clocks: Clocks
    end: float
    """The monotonic time at which the whole request is too long."""

    def blocks(self) -> Iterator[bytes]:
        """The body as it comes."""
        while True:
            left = self.end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the whole request took too long")
            self.socket.settimeout(min(self.clocks.read_s, left))
            block = self.response.read1(65_536)
            if not block:
                return
            yield block

    def text(self) -> str:
        """The whole body; invalid UTF-8 is replaced."""
        return b"".join(self.blocks()).decode(errors="replace")

    def events(self) -> Iterator[str]:
        """The data of server-sent events (WHATWG HTML, section 9.2)."""
        held, data = b"", []
        for block in self.blocks():
            *lines, held = (held + block).split(b"\n")
            for line in lines:
                text = line.rstrip(b"\r").decode(errors="replace")
                if text.startswith("data:"):
                    data.append(text[5:].removeprefix(" "))
                elif not text and data:
                    yield "\n".join(data)
                    data = []

    def wait_s(self) -> float | None:
        """Seconds to wait by `Retry-After` (RFC 9110, section 10.2.3)."""
        wait = self.response.headers.get("Retry-After")
        if wait is None:
            return None
        if wait.strip().isdigit():
            return float(wait)
        try:
            date = email.utils.parsedate_to_datetime(wait)
        except ValueError:
            return None
        return max(0.0, date.timestamp() - time.time())


@contextmanager
def post(
    url: str, headers: Mapping[str, str], body: Mapping[str, Any], clocks: Clocks
) -> Iterator[ServerAnswer]:
    """The answer to a POST. Raises AttemptError, also while the answer is read."""
    parts = urlsplit(url)
    host, end = parts.hostname or "", time.monotonic() + clocks.total_s
    connection = (
        http.client.HTTPSConnection(host, parts.port, timeout=clocks.connect_s)
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, parts.port, timeout=clocks.connect_s)
    )
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        connection.connect()
        socket = connection.sock  # the response takes it from a closing connection
        socket.settimeout(min(clocks.read_s, clocks.total_s))
        connection.request("POST", path, json.dumps(body).encode(), dict(headers))
        yield ServerAnswer(connection.getresponse(), socket, clocks, end)
    except TimeoutError as error:
        message = f"{url} was too slow: {error}"
        raise AttemptError(
            "TW550", message, "raise the timeouts, or ask for less", again=True
        ) from None
    except ssl.SSLCertVerificationError as error:
        message = f"{url} cannot be trusted: {error.verify_message}"
        raise AttemptError("TW551", message, "check the address", again=False) from None
    except (OSError, http.client.HTTPException) as error:
        message = f"{url} cannot be reached, or broke off: {error or type(error).__name__}"
        raise AttemptError("TW550", message, "is the server running?", again=True) from None
    finally:
        connection.close()


class Server:
    """A generator over HTTP; `account` has its usage."""

    def __init__(self, spec: ServerSpec, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(spec.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            message, fix = f"`{spec.url}` is no address of a server", "write http://HOST:PORT/v1"
            raise UsageError([Problem("TW556", "generator.url", message, fix)])
        self._spec, self._sleep = spec, sleep
        self._url = f"{spec.url.rstrip('/')}/chat/completions"
        self._clocks = Clocks(spec.connect, spec.read, spec.total)
        self._places = threading.BoundedSemaphore(spec.at_once)
        self.account = Account(spec.prices)

    def complete(self, request: ChatRequest) -> Reply:
        """The whole reply. Raises UsageError (TW550 to TW554)."""
        return self._patiently(request, lambda: self._once(request))

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """Pieces as they come. Raises UsageError, in the middle with TW555."""
        pieces, first = self._patiently(request, lambda: self._begun(request))
        yield first
        try:
            yield from pieces
        except AttemptError as fault:
            hint = "ask for the whole reply, which is retried"
            message = f"the stream broke off after its first text: {fault.message}"
            raise UsageError([Problem("TW555", "generator", message, hint)]) from None

    def _patiently(self, request: ChatRequest, attempt: Callable[[], T]) -> T:
        spec, text = self._spec, repr((request.messages, request.sampling.seed))
        seed = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
        draw = random.Random(seed)
        for number in range(1, spec.attempts + 1):
            try:
                return attempt()
            except AttemptError as fault:
                wait_s = min(spec.longest_wait, spec.first_wait * 2 ** (number - 1))
                wait_s *= draw.random()
                if fault.wait_s is not None:
                    wait_s = max(wait_s, fault.wait_s)
                last = number == spec.attempts or wait_s > spec.longest_wait
                if last or not fault.again:
                    raise _given_up(fault, number) from None
                self._sleep(wait_s)
        raise AssertionError("there is at least one attempt")

    def _once(self, request: ChatRequest) -> Reply:
        with self._places, self._post(request, stream=False) as answer:
            _expect(answer, "json")
            text = answer.text()
            reply = _parsed(lambda: chat.reply(json.loads(text), request))
        self.account.reply(reply.tokens)
        return reply

    def _begun(self, request: ChatRequest) -> tuple[Iterator[ReplyPiece], ReplyPiece]:
        pieces = self._pieces(request)
        return pieces, next(pieces)

    def _pieces(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        assembly = chat.Assembly(request)
        with self._places, self._post(request, stream=True) as answer:
            _expect(answer, "event-stream")
            for event in answer.events():
                if event == "[DONE]":
                    break
                piece = _parsed(lambda: assembly.add(json.loads(event)))  # noqa: B023  called at once
                if piece.text:
                    yield piece
            reply = _parsed(assembly.whole)
        self.account.reply(reply.tokens)
        yield ReplyPiece("", reply)

    def _post(self, request: ChatRequest, *, stream: bool) -> Any:
        self.account.attempt()
        headers = {"Content-Type": "application/json", **self._authorization()}
        made = chat.body(request, self._spec.model, stream=stream)
        return post(self._url, headers, made, self._clocks)

    def _authorization(self) -> dict[str, str]:
        """The header with the key; the key is read per request and not kept."""
        name = self._spec.key_variable
        if name is None:
            return {}
        key = os.environ.get(name, "").strip()
        if not key:
            message, fix = f"the environment variable {name} holds no key", f"export {name}=..."
            raise UsageError([Problem("TW554", "generator.key_variable", message, fix)])
        return {"Authorization": f"Bearer {key}"}


def _given_up(fault: AttemptError, attempts: int) -> UsageError:
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return UsageError([Problem(fault.code, "generator", f"{fault.message} ({times})", fault.hint)])


def _parsed(read: Callable[[], T]) -> T:
    try:
        return read()
    except (ValueError, RecursionError) as error:
        hint = "check that the server speaks chat completions"
        raise AttemptError(
            "TW553", f"the answer cannot be read: {error}", hint, again=True
        ) from None


def _expect(answer: ServerAnswer, kind: str) -> None:
    """Raises AttemptError for a failure status or another content type."""
    if answer.response.status != 200:
        raise _refused(answer)
    content = answer.response.headers.get("Content-Type", "none")
    if kind not in content:
        message, hint = f"the answer is of type {content}", "check the address: it ends in /v1"
        raise AttemptError("TW553", message, hint, again=False)


def _refused(answer: ServerAnswer) -> AttemptError:
    status, text = answer.response.status, answer.text()
    reason = _message_of(text)
    message = f"the server answers {status}: {reason[:300]}"
    again = status in _AGAIN
    if status in (401, 403):
        return AttemptError("TW551", message, "check the key and its variable", again=False)
    if status in (400, 413, 422) and ("context" in reason.lower() or "context_length" in text):
        hint = "shorten the dialogue, or lower max_tokens"
        return AttemptError("TW552", message, hint, again=False)
    hint = "try later, or lower at_once" if again else "check the address and the model's name"
    return AttemptError(
        "TW550" if again else "TW551", message, hint, again=again, wait_s=answer.wait_s()
    )


def _message_of(text: str) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text
