"""The HTTP server: the standard library's, a thread per connection, over one engine.

It speaks to programs that one trusts: no keys, no TLS, on the local machine unless told otherwise.
Whoever closes the connection cancels the request.
"""

from __future__ import annotations

import json
import select
import socket
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

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

_BODY: Final = 32 << 20
"""Bytes of a body, at most."""


class Server(ThreadingHTTPServer):
    """Listens from construction on; `start` serves on a thread, `drain` ends."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, service: Service, name: str, address: tuple[str, int]) -> None:
        super().__init__(address, Handler)
        self.service = service
        self.api = OpenAiApi(service, name)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> Thread:
        """Serve on a thread."""
        thread = Thread(target=self.serve_forever, args=(0.05,), name="http", daemon=True)
        thread.start()
        return thread

    def drain(self) -> None:
        """Refuse what is new (503), finish what was begun, then close."""
        self.service.drain()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 30
    """Seconds that a client may take to send what it has begun."""

    def do_GET(self) -> None:
        """Health, metrics, models."""
        self._guarded(self._get)

    def do_POST(self) -> None:
        """Completions and chats."""
        self._guarded(self._post)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base's name
        """Nothing: metrics say what goes on."""

    def _get(self) -> None:
        path = self.path.partition("?")[0]
        service = self.server.service
        if path == "/health":
            if service.draining or service.failure is not None:
                raise ApiError(503, "draining" if service.draining else "the engine failed")
            self._send_json(200, {"status": "ok"})
        elif path == "/metrics":
            text = metrics(service.figures())
            self._send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            self._send_json(200, {"object": "list", "data": [self._model()]})
        elif path == f"/v1/models/{self.server.api.served.name}":
            self._send_json(200, self._model())
        else:
            raise ApiError(404, f"there is no `{path}`")

    def _model(self) -> dict[str, Any]:
        name = self.server.api.served.name
        return {"id": name, "object": "model", "created": 0, "owned_by": "reference"}

    def _post(self) -> None:
        path = self.path.partition("?")[0]
        readers: dict[str, Callable[[Any], ApiRequest]] = {
            "/v1/completions": self.server.api.read_completion,
            "/v1/chat/completions": self.server.api.read_chat,
        }
        body = self._body()
        if path not in readers:
            raise ApiError(404, f"there is no `{path}`")
        if self.server.service.draining:
            raise DrainingError
        self._answer(readers[path](body))

    def _answer(self, request: ApiRequest) -> None:
        with self.server.api.begin(request, self._gone) as (answer, updates, stream):
            if request.body.stream:
                self._send_events(answer.chunks(self._reading(updates, stream)))
                return
            document = answer.whole(updates)
            if stream.over:
                self._send_json(200, document)

    def _reading(self, updates: Iterator[Update], stream: UpdateStream) -> Iterator[Update]:
        """The updates; raises ConnectionAbortedError where the reader went away."""
        yield from updates
        if not stream.over:
            raise ConnectionAbortedError

    def _gone(self) -> bool:
        """Whether the other side closed the connection."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if not readable:
            return False
        try:
            return self.connection.recv(1, socket.MSG_PEEK) == b""
        except OSError:
            return True

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self.close_connection = True
            raise ApiError(411, "a body needs `Content-Length`")
        if int(length) > _BODY:
            self.close_connection = True
            raise ApiError(413, f"a body may have {_BODY >> 20} MiB")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise wrong("body", "is not JSON") from None

    def _guarded(self, act: Callable[[], None]) -> None:
        """`act`, its errors told in OpenAI's shape."""
        try:
            act()
        except ApiError as error:
            self._refuse(error)
        except RefusedError as error:
            self._refuse(wrong(error.field, str(error)))
        except QueueFullError as error:
            self._refuse(ApiError(429, f"{error}; ask again later", code="queue_full"))
        except DrainingError:
            self._refuse(ApiError(503, "the server is draining", code="draining"))
        except EngineFailedError:
            self._refuse(ApiError(500, "the engine failed"))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception:  # noqa: BLE001  our bug; the client hears that it is
            traceback.print_exc()
            self._refuse(ApiError(500, "the server failed"))

    def _refuse(self, error: ApiError) -> None:
        """The error as an answer, or as the last event of a stream that has begun."""
        if getattr(self, "_begun", False):
            self._event(json.dumps(error.body()))
            self._end_events()
            return
        self._send_json(error.status, error.body())

    def _send_json(self, status: int, document: Any) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        if self.server.service.draining:
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _send_events(self, documents: Iterator[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self._begun = True
        for document in documents:
            self._event(json.dumps(document))
        self._end_events()

    def _event(self, text: str) -> None:
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def _end_events(self) -> None:
        self._event("[DONE]")
