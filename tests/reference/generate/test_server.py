"""The client of OpenAI-compatible servers against a real one with faults.

The server takes its behaviour for each request from a list, and counts what reaches it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import pytest

from reference.dialog import Message, numbered
from reference.generate.request import ChatRequest, Reply, Sampling, Tokens, Total, complete_many
from reference.generate.server import Server, ServerSpec
from twin.errors import UsageError

Behaviour = Callable[[BaseHTTPRequestHandler], None]
ASKED = ChatRequest((Message("system", "Be brief."), Message("user", "Hello?")))


class Host(ThreadingHTTPServer):
    """Behaviours that are left, and the bodies and headers that came."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.todo: list[Behaviour] = []
        self.bodies: list[Any] = []
        self.keys: list[str | None] = []
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def server_bind(self) -> None:
        """Without the look-up of its name, which takes seconds where no resolver answers."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that went away are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the tests count."""

    def do_POST(self) -> None:
        host = self.server
        assert isinstance(host, Host)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with host.lock:
            host.bodies.append(body)
            host.keys.append(self.headers.get("Authorization"))
            behave = host.todo.pop(0) if host.todo else well()
        assert self.path == "/v1/chat/completions"
        behave(self)


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def _send(
    handler: BaseHTTPRequestHandler,
    text: str | bytes,
    status: int = 200,
    kind: str = "application/json",
    **headers: str,
) -> None:
    data = text.encode() if isinstance(text, str) else text
    handler.send_response(status)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **named}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def well(text: str = "Hi.", **more: Any) -> Behaviour:
    answer = {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
        **more,
    }
    return lambda handler: _send(handler, json.dumps(answer))


def fails(status: int, message: str = "no", **headers: str) -> Behaviour:
    text = json.dumps({"error": {"message": message}})
    return lambda handler: _send(handler, text, status, **headers)


def says(text: str | bytes, kind: str = "application/json") -> Behaviour:
    return lambda handler: _send(handler, text, kind=kind)


def resets(handler: BaseHTTPRequestHandler) -> None:
    """Half an answer, then a reset of the connection."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    handler.wfile.write(b'Content-Length: 1000\r\n\r\n{"choices"')
    handler.wfile.flush()
    _reset(handler)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Closing the object would wait for the files that are open on it.
    os.close(handler.connection.detach())
    handler.close_connection = True


def chunk(text: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    said = {**({} if text is None else {"content": text}), **delta}
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}


def streams(
    chunks: list[dict[str, Any]], cut: int = 1 << 20, wait_s: float = 0.0, *, reset: bool = False
) -> Behaviour:
    """Server-sent events in blocks of so many bytes, so long after each other."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        done = "" if reset else "data: [DONE]\n\n"
        events = "".join(f"data: {json.dumps(one, ensure_ascii=False)}\r\n\r\n" for one in chunks)
        data = f": hello\n\n{events}{done}".encode()
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with contextlib.suppress(OSError):
            for at in range(0, len(data), cut):
                block = data[at : at + cut]
                handler.wfile.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
                handler.wfile.flush()
                time.sleep(wait_s)
            if reset:
                time.sleep(0.05)  # what was sent should arrive before the reset does
                _reset(handler)
            else:
                handler.wfile.write(b"0\r\n\r\n")

    return behave


def _server(host: Host, waits: list[float] | None = None, **settings: Any) -> Server:
    found = ServerSpec.model_validate({"url": host.url, "model": "m", "read": "3s", **settings})
    return Server(found, sleep=(waits if waits is not None else []).append)


def test_a_reply_comes_with_its_tokens_and_cost(host: Host) -> None:
    server = _server(host, prices={"prompt": 2.0, "reply": 10.0})
    assert server.complete(ASKED) == Reply("Hi.", (), Tokens(11, 3), "stop")
    assert server.account.total == Total(1, 1, 11, 3, 0, (11 * 2 + 3 * 10) / 1e6)
    (body,) = host.bodies
    assert body["messages"][1] == {"role": "user", "content": "Hello?"}
    assert (body["model"], body["max_tokens"], body["seed"]) == ("m", 1024, 0)


def test_a_reply_without_usage_is_counted_as_uncounted(host: Host) -> None:
    host.todo = [well(usage=None)]
    server = _server(host)
    assert server.complete(ASKED).tokens == Tokens(None, None)
    assert server.account.total.uncounted == 1


@pytest.mark.parametrize(
    "fault",
    [
        fails(500),
        fails(503),
        resets,
        says('{"choices": [{"mess'),
        says('{"choices": []}'),
        says("[1]"),
        says(b"\xff\xfe{"),
        lambda handler: handler.connection.shutdown(socket.SHUT_RDWR),
    ],
    ids=["500", "503", "reset", "cut", "empty", "list", "no_utf8", "closed"],
)
def test_a_passing_fault_is_tried_again(host: Host, fault: Behaviour) -> None:
    host.todo = [fault, fault, well("At last.")]
    waits: list[float] = []
    server = _server(host, waits)
    assert server.complete(ASKED).text == "At last."
    assert server.account.total.attempts == len(host.bodies) == 3
    assert server.account.total.reply_tokens == 3
    assert len(waits) == 2
    assert all(0 <= wait <= 0.5 * 2**at for at, wait in enumerate(waits))


def test_attempts_end_and_the_last_fault_is_told(host: Host) -> None:
    host.todo = [fails(500, "all is lost")] * 9
    waits: list[float] = []
    with pytest.raises(UsageError, match=r"TW550.*500: all is lost \(4 attempts\)"):
        _server(host, waits, attempts=4).complete(ASKED)
    assert len(host.bodies) == 4
    assert len(waits) == 3


def test_waits_are_the_same_every_time_and_bounded(host: Host) -> None:
    found: list[list[float]] = []
    for _ in range(2):
        host.todo = [fails(500)] * 8
        waits: list[float] = []
        _server(host, waits, attempts=9, longest_wait="2s").complete(ASKED)
        found.append(waits)
    assert found[0] == found[1]
    assert len(set(found[0])) == 8
    assert max(found[0]) <= 2


def test_retry_after_is_obeyed(host: Host) -> None:
    host.todo = [fails(429, Retry_After="7"), well()]
    waits: list[float] = []
    _server(host, waits).complete(ASKED)
    assert waits == [7.0]


def test_a_retry_after_beyond_patience_gives_up(host: Host) -> None:
    host.todo = [fails(429, "slow down", Retry_After="3600"), well()]
    with pytest.raises(UsageError, match=r"429: slow down \(1 attempt\)"):
        _server(host).complete(ASKED)
    assert len(host.bodies) == 1


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (fails(400, "This model's maximum context length is 10 tokens"), "TW552"),
        (fails(401, "bad key"), "TW551"),
        (fails(404, "no such model"), "TW551"),
        (fails(302), "TW551"),
        (says("<html>", "text/html"), "TW553"),
    ],
    ids=["context", "key", "model", "redirect", "html"],
)
def test_a_lasting_fault_is_told_at_once(host: Host, fault: Behaviour, code: str) -> None:
    host.todo = [fault, well()]
    with pytest.raises(UsageError, match=rf"{code}.*\(1 attempt\)"):
        _server(host).complete(ASKED)
    assert len(host.bodies) == 1


def test_slow_bytes_run_into_the_read_clock(host: Host) -> None:
    host.todo = [lambda _: time.sleep(0.5), well("Quick.")]
    assert _server(host, read="0.1s").complete(ASKED).text == "Quick."
    assert len(host.bodies) == 2


def test_a_trickle_runs_into_the_total_clock(host: Host) -> None:
    host.todo = [streams([chunk("x" * 400)], cut=8, wait_s=0.02)] * 2
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"TW550.*too slow"):
        list(_server(host, read="5s", total="0.2s", attempts=1).stream(ASKED))
    assert time.monotonic() - began < 2


def test_nobody_listens_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    spec = ServerSpec.model_validate({"url": f"http://127.0.0.1:{port}/v1", "attempts": 2})
    with pytest.raises(UsageError, match=r"TW550.*cannot be reached.*\(2 attempts\)"):
        Server(spec, sleep=lambda _: None).complete(ASKED)


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
def test_a_stream_is_whole_however_its_bytes_are_cut(host: Host, cut: int) -> None:
    host.todo = [streams([chunk("Grüß "), chunk("dich, 世界"), chunk("", "stop"), USAGE], cut)]
    server = _server(host)
    pieces = list(server.stream(ASKED))
    assert [one.text for one in pieces] == ["Grüß ", "dich, 世界", ""]
    assert pieces[-1].reply == Reply("Grüß dich, 世界", (), Tokens(7, 5), "stop")
    assert server.account.total.reply_tokens == 5
    assert host.bodies[0]["stream_options"] == {"include_usage": True}


def test_a_stream_that_breaks_before_its_first_text_is_begun_again(host: Host) -> None:
    host.todo = [streams([], reset=True), streams([chunk("Yes", "stop")])]
    assert [one.text for one in _server(host).stream(ASKED)] == ["Yes", ""]
    assert len(host.bodies) == 2


@pytest.mark.parametrize("reset", [True, False])
def test_a_stream_that_breaks_later_is_not_begun_again(host: Host, reset: bool) -> None:
    host.todo = [streams([chunk("Ye")], reset=reset)]
    pieces = _server(host).stream(ASKED)
    assert next(pieces).text == "Ye"
    with pytest.raises(UsageError, match="TW555"):
        next(pieces)
    assert len(host.bodies) == 1


def test_calls_in_pieces_get_the_ids_of_the_template(host: Host) -> None:
    def part(index: int, **function: str) -> dict[str, Any]:
        return chunk(tool_calls=[{"index": index, "id": "x", "function": function}])

    parts = [part(0, name="add", arguments=""), part(0, arguments='{"a"'), part(1, name="sub")]
    parts += [part(0, arguments=": 1}"), part(1, arguments="{}"), chunk(None, "tool_calls")]
    host.todo = [streams(parts)]
    before = Message("assistant", "", (numbered("add", 0, "{}"),))
    after = Message("tool", "3", answers="functions.add:0")
    reply = list(_server(host).stream(ChatRequest((*ASKED.messages, before, after))))[-1].reply
    assert reply is not None
    assert reply.calls == (numbered("add", 1, '{"a": 1}'), numbered("sub", 2, "{}"))
    sent = host.bodies[0]["messages"]
    assert sent[2]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert sent[3]["tool_call_id"] == sent[2]["tool_calls"][0]["id"] == "functions.add:0"


def test_log_probabilities_are_asked_for_and_read(host: Host) -> None:
    row = {"content": [{"token": "H", "logprob": -0.5}, {"token": "i", "logprob": -0.25}]}
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop", "logprobs": row}
    host.todo = [well(choices=[choice])]
    reply = _server(host).complete(ChatRequest(ASKED.messages, sampling=Sampling(logprobs=True)))
    assert reply.logprobs == (-0.5, -0.25)
    assert host.bodies[0]["logprobs"] is True


def test_no_more_requests_at_once_than_allowed(host: Host) -> None:
    here: set[int] = set()
    seen: list[int] = []
    three = threading.Barrier(3)

    def together(handler: BaseHTTPRequestHandler) -> None:
        here.add(threading.get_ident())
        three.wait(20)  # nobody is answered before three are here
        time.sleep(0.03)  # a fourth would come now
        seen.append(len(here))
        here.discard(threading.get_ident())
        well()(handler)

    host.todo = [together] * 12
    found = complete_many(_server(host, at_once=3), [ASKED] * 12, at_once=12)
    assert all(isinstance(one, Reply) for one in found)
    assert max(seen) == 3


def test_many_go_on_when_one_fails(host: Host) -> None:
    host.todo = [well("1"), fails(404), well("3")]
    found = complete_many(_server(host), [ASKED] * 3, at_once=1)
    assert [type(one) for one in found] == [Reply, UsageError, Reply]


def test_the_key_is_sent_and_never_told(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAL_KEY", "hush-hush")
    host.todo = [fails(401, "bad key")]
    server = _server(host, key_variable="TRIAL_KEY")
    with pytest.raises(UsageError) as told:
        server.complete(ASKED)
    assert host.keys == ["Bearer hush-hush"]
    assert "hush" not in str(told.value) + repr(vars(server))
    monkeypatch.delenv("TRIAL_KEY")
    with pytest.raises(UsageError, match=r"TW554.*TRIAL_KEY"):
        server.complete(ASKED)


@pytest.mark.parametrize("url", ["ftp://x/v1", "localhost:8000", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="TW556"):
        Server(ServerSpec(url=url))
