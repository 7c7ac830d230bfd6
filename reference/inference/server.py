"""The HTTP server: uvicorn on a thread, over one engine; threads of a pool wait for answers.

Clients are not trusted. A body has a bound, and so has the time that a client may take for a
request, for its body, and to read what is sent. Whoever closes the connection cancels the request.
With a key, all of `/v1` asks for it, as OpenAI's clients send it. There is no TLS: on other
addresses than this machine's, put a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import resource
import socket
import traceback
from asyncio import TimerHandle
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any, Final, TypeVar

import uvicorn
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from reference.inference.engine import (
    DrainingError,
    EngineFailedError,
    Service,
    UpdateStream,
    metrics,
)
from reference.inference.openai.api import OpenAiApi
from reference.inference.openai.body import ApiError, ApiRequest, wrong
from reference.inference.request import QueueFullError, RefusedError, Update

T = TypeVar("T")
BODY: Final = 8 << 20
"""Bytes of a body, at most."""
SLOW_S: Final = 30.0
"""Seconds that a client may take to send a request, to send its body, and to read what it was
sent."""
CONNECTIONS: Final = 4096
"""Connections at one time; further ones are closed."""


class Server:
    """Listens from construction on; `start` serves on a thread, `drain` ends. With a `key`, /v1
    answers whoever sends it."""

    def __init__(
        self, service: Service, name: str, address: tuple[str, int], key: str | None = None
    ) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._listening = socket.create_server(address, family=family, backlog=1024)
        self.server_address = self._listening.getsockname()
        self.service, self.api = service, OpenAiApi(service, name)
        config = uvicorn.Config(
            _App(self, key),
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(SLOW_S),
            timeout_graceful_shutdown=int(SLOW_S),
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> Thread:
        """Serve on a thread."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < 2 * CONNECTIONS:
            wanted = 2 * CONNECTIONS
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        serve = self._server.run
        thread = Thread(target=serve, args=([self._listening],), name="http", daemon=True)
        thread.start()
        return thread

    def drain(self) -> None:
        """Refuse what is new (503), finish what was begun, then close."""
        self.service.drain()
        self.close()

    def close(self) -> None:
        """End the server, not the service."""
        self._server.should_exit = True


class _Connection(H11Protocol):
    """A connection that a slow client does not hold."""

    _request_due: TimerHandle | None = None
    _reading_due: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)
        self._request_due = self.loop.call_later(SLOW_S, transport.abort)
        if len(self.connections) > CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun = self.cycle is not None and not self.cycle.response_complete
        if begun and self._request_due is not None:
            self._request_due.cancel()
            self._request_due = None
        elif not begun and self._request_due is None:
            self._request_due = self.loop.call_later(SLOW_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_due = self.loop.call_later(SLOW_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading_due is not None:
            self._reading_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        for due in (self._request_due, self._reading_due):
            if due is not None:
                due.cancel()
        super().connection_lost(exc)


class _App:
    """The server as an ASGI application (asgi.readthedocs.io, version 3)."""

    def __init__(self, server: Server, key: str | None) -> None:
        self._service, self._api = server.service, server.api
        self._key = None if key is None else f"Bearer {key}".encode()
        spec = self._service.engine.spec
        self._pool = ThreadPoolExecutor(spec.running + spec.queue + 8, "answer")
        self._readers: Mapping[str, Callable[[Any], ApiRequest]] = {
            "/v1/completions": self._api.read_completion,
            "/v1/chat/completions": self._api.read_chat,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            self._admit(request)
            if request.method == "POST":
                await self._post(request, receive, send)
            else:
                await (await self._get(request.url.path))(scope, receive, send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  a bug of ours is told as one
            await self._refusal(error)(scope, receive, send)

    def _admit(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        guarded = self._key is not None and request.url.path.startswith("/v1")
        if guarded and not hmac.compare_digest(given, self._key or b""):
            message = "the key is missing or wrong; send `Authorization: Bearer KEY`"
            raise ApiError(401, message, code="invalid_api_key")
        if request.method not in ("GET", "HEAD", "POST"):
            raise ApiError(405, f"`{request.method}` is not supported")

    async def _get(self, path: str) -> Response:
        name = self._api.served.name
        model = {"id": name, "object": "model", "created": 0, "owned_by": "reference"}
        if path == "/health":
            if self._service.draining or self._service.failure is not None:
                raise ApiError(503, "draining" if self._service.draining else "the engine failed")
            return self._json(200, {"status": "ok"})
        if path == "/metrics":
            text = metrics(await self._wait(self._service.figures))
            return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
        if path == "/v1/models":
            return self._json(200, {"object": "list", "data": [model]})
        if path == f"/v1/models/{name}":
            return self._json(200, model)
        raise ApiError(404, f"there is no `{path}`")

    async def _post(self, request: Request, receive: Receive, send: Send) -> None:
        reader = self._readers.get(request.url.path)
        if reader is None:
            raise ApiError(404, f"there is no `{request.url.path}`")
        body = await _body(request)
        if self._service.draining:
            raise DrainingError
        gone = Event()
        watch = asyncio.create_task(_until_gone(receive, gone))
        documents = self._documents(reader, body, gone)
        try:
            first, streamed = await self._wait(lambda: next(documents))
            if not streamed:
                await self._json(200, first)(request.scope, receive, send)
                return
            await self._send_events(first, documents, send)
        except ConnectionAbortedError:
            return
        finally:
            watch.cancel()
            gone.set()
            await self._wait(documents.close)

    def _documents(
        self, reader: Callable[[Any], ApiRequest], body: bytes, gone: Event
    ) -> Generator[tuple[Any, bool]]:
        """The documents of an answer, and whether they are a stream; a thread of the pool goes
        from one to the next. Raises ConnectionAbortedError where the reader went away."""
        request = reader(_parsed(body))
        with self._api.begin(request, gone.is_set) as (answer, updates, stream):
            if request.body.stream:
                for document in answer.chunks(_reading(updates, stream)):
                    yield document, True
            else:
                yield answer.whole(_reading(updates, stream)), False

    async def _send_events(self, first: Any, documents: Iterator[Any], send: Send) -> None:
        headers = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        shown = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": shown})
        document: Any = first
        while document is not None:
            await _send_event(send, json.dumps(document))
            try:
                document, _ = await self._wait(lambda: next(documents, (None, True)))
            except ConnectionAbortedError:
                raise
            except Exception as error:  # noqa: BLE001  the stream has begun: its last event tells
                await _send_event(send, json.dumps(_told(error).body()))
                break
        await _send_event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def _wait(self, act: Callable[[], T]) -> T:
        """What a thread of the pool returns."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, act)

    def _refusal(self, error: Exception) -> Response:
        told = _told(error)
        answer = self._json(told.status, told.body())
        if told.status in (429, 503):
            answer.headers["Retry-After"] = "1"
        if told.status in (408, 411, 413):
            answer.headers["Connection"] = "close"  # the rest of the body is not read
        if told.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _json(self, status: int, document: Any) -> Response:
        answer = Response(json.dumps(document), status, media_type="application/json")
        if self._service.draining:
            answer.headers["Connection"] = "close"
        return answer


async def _body(request: Request) -> bytes:
    """The body. What is too long is read on for a while and not kept: most clients send all before
    they look at an answer."""
    parts: list[bytes] = []
    size, most = 0, 8 * BODY
    declared = request.headers.get("content-length", "0")
    try:
        async with asyncio.timeout(SLOW_S):
            async for part in request.stream():
                size += len(part)
                if size <= BODY:
                    parts.append(part)
                if max(size, int(declared)) > most:
                    break
    except TimeoutError:
        raise ApiError(408, f"the body did not come in {SLOW_S:.0f} s") from None
    if size > BODY or int(declared) > most:
        raise ApiError(413, f"a body may have {BODY >> 20} MiB")
    return b"".join(parts)


def _parsed(body: bytes) -> Any:
    """The JSON of a body; deep nesting and halves of surrogate pairs are none."""
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise wrong("body", f"is not JSON: {error}") from None


async def _until_gone(receive: Receive, gone: Event) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            continue
        gone.set()


def _reading(updates: Iterator[Update], stream: UpdateStream) -> Iterator[Update]:
    """The updates; raises ConnectionAbortedError where the reader went away."""
    yield from updates
    if not stream.over:
        raise ConnectionAbortedError


async def _send_event(send: Send, text: str) -> None:
    body = f"data: {text}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _told(error: Exception) -> ApiError:
    """Any error in OpenAI's shape."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RefusedError):
        return wrong(error.field, str(error))
    if isinstance(error, QueueFullError):
        return ApiError(429, f"{error}; ask again later", code="queue_full")
    if isinstance(error, DrainingError):
        return ApiError(503, "the server is draining", code="draining")
    if isinstance(error, EngineFailedError):
        return ApiError(500, "the engine failed")
    traceback.print_exception(error)
    return ApiError(500, "the server failed")
