"""A real server on a real socket, spoken to as any client does."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest

from reference.inference.engine import Service
from reference.inference.server import Server
from tests.reference.inference.small import engine, model

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    served = Server(Service(engine(blocks=256, queue=6, running=2)), "mini", ("127.0.0.1", 0))
    thread = served.start()
    yield served
    if thread.is_alive():
        served.drain()
        thread.join()


def ask(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    """The status, and the answer as JSON or text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, sent, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    is_json = answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(text) if is_json else text


def complete(server: Server, **fields: Any) -> Any:
    body = {"model": "mini", "prompt": "to be", "temperature": 0, "max_tokens": 8, **fields}
    status, answer = ask(server, "/v1/completions", body)
    assert status == 200, answer
    return answer


def chat(server: Server, **fields: Any) -> Any:
    body = {"messages": HELLO, "seed": 1, "max_tokens": 200, "temperature": 1.5, **fields}
    status, answer = ask(server, "/v1/chat/completions", body)
    assert status == 200, answer
    return answer


def events(text: str) -> list[Any]:
    """The documents of a stream, whose end is checked."""
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_completion_counts_its_tokens_and_says_its_weights(server: Server) -> None:
    answer = complete(server)
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["weight_version"] == 0


def test_the_same_seed_gives_the_same_choices_streamed_or_whole(server: Server) -> None:
    fields = {"temperature": 1, "seed": 9, "n": 3, "max_tokens": 20}
    whole = complete(server, **fields)["choices"]
    streamed = events(complete(server, stream=True, **fields))
    for index in range(3):
        parts = [one["choices"][0] for one in streamed if one["choices"][0]["index"] == index]
        assert "".join(one["text"] for one in parts) == whole[index]["text"]
        assert parts[-1]["finish_reason"] == whole[index]["finish_reason"]
    assert len({one["text"] for one in whole}) == 3


def test_choices_that_end_in_one_step_all_arrive(server: Server) -> None:
    found = complete(server, prompt="def f", max_tokens=1, n=3)["choices"]
    assert [choice["finish_reason"] for choice in found] == ["length"] * 3


def test_a_second_turn_finds_the_first_one_in_the_cache(server: Server) -> None:
    prompt = "a prompt of more than two blocks of sixteen"
    complete(server, prompt=prompt)
    details = complete(server, prompt=prompt)["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] == 32


def test_log_probabilities_come_with_each_token(server: Server) -> None:
    found = chat(server, logprobs=True, top_logprobs=2, max_tokens=5, return_token_ids=True)
    content = found["choices"][0]["logprobs"]["content"]
    assert [one["token_id"] for one in content] == found["choices"][0]["token_ids"]
    for one in content:
        best = [other["logprob"] for other in one["top_logprobs"]]
        assert best == sorted(best, reverse=True)
        assert one["logprob"] <= best[0] <= 0
        assert one["sampled_logprob"] <= 0
    assert found["prompt_token_ids"][0] == 258


def test_a_required_call_parses_validates_and_streams_to_the_same(server: Server) -> None:
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
    choice = chat(server, **fields)["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["id"] == "functions.add:0"
    jsonschema.validate(json.loads(call["function"]["arguments"]), TOOL["function"]["parameters"])
    streamed = events(chat(server, stream=True, stream_options={"include_usage": True}, **fields))
    deltas = [one["choices"][0]["delta"] for one in streamed if one["choices"]]
    parts = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert parts[0]["id"] == call["id"]
    said = "".join(one["function"]["arguments"] for one in parts)
    assert said == call["function"]["arguments"]
    assert streamed[-1]["usage"]["completion_tokens"] > 0
    assert streamed[-1]["choices"] == []


def test_the_next_call_of_a_dialog_has_the_next_index(server: Server) -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    messages = [
        *HELLO,
        {"role": "assistant", "tool_calls": [{"id": "call_x", "function": function}]},
        {"role": "tool", "tool_call_id": "call_x", "content": "2"},
    ]
    named = {"type": "function", "function": {"name": "add"}}
    answer = chat(server, messages=messages, tools=[TOOL], tool_choice=named)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["id"] == "functions.add:1"


def test_an_answer_in_json_fulfils_its_schema(server: Server) -> None:
    schema = TOOL["function"]["parameters"]
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    message = chat(server, response_format=form)["choices"][0]["message"]
    jsonschema.validate(json.loads(message["content"]), schema)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/completions", {"prompt": ""}, 400, "prompt"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 10**6}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "a", "temperature": "hot"}, 400, "temperature"),
        ("/v1/completions", {"prompt": "a", "colour": 1}, 400, "colour"),
        ("/v1/completions", {"prompt": "a", "model": "other"}, 404, "model"),
        ("/v1/completions", {"prompt": [999]}, 400, "prompt"),
        ("/v1/completions", b"{", 400, "body"),
        ("/v1/nothing", {}, 404, None),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "x"}]}, 400, "messages.0.role"),
        (
            "/v1/chat/completions",
            {"messages": HELLO, "tool_choice": "required"},
            400,
            "tool_choice",
        ),
        (
            "/v1/chat/completions",
            {
                "messages": HELLO,
                "tools": [
                    {"function": {"name": "f", "parameters": {"properties": {"a": {"minimum": 1}}}}}
                ],
            },
            400,
            "tools.0.function.parameters.properties.a.minimum",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told_by_field_in_openais_shape(server, path, body, status, param) -> None:
    found, answer = ask(server, path, body)
    assert (found, answer["error"]["param"]) == (status, param)
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["message"]


def test_many_at_once_are_answered_and_too_many_are_refused(server: Server) -> None:
    body = {"prompt": "to be", "max_tokens": 30, "temperature": 0, "n": 2}
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: ask(server, "/v1/completions", body), range(16)))
    assert {status for status, _ in found} == {200, 429}
    said = {one["text"] for status, answer in found if status == 200 for one in answer["choices"]}
    assert len(said) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_is_forgotten(server: Server, stream: bool) -> None:
    cancelled = server.service.engine.counts.finished.get("cancelled", 0)
    # Greedy: a drawn end of the document would come before the hanging up now and then.
    asked = {"prompt": "hello", "max_tokens": 4000, "temperature": 0, "stream": stream}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(server.server_address[:2]) as connection:  # type: ignore[arg-type]
        connection.sendall(head.encode() + body)
        wait(lambda: server.service.figures()["running"] == 1)
    wait(lambda: server.service.figures()["running"] == 0)
    assert server.service.engine.counts.finished["cancelled"] == cancelled + 1


def test_health_models_and_metrics(server: Server) -> None:
    assert ask(server, "/health") == (200, {"status": "ok"})
    assert ask(server, "/v1/models")[1]["data"][0]["id"] == "mini"
    text = ask(server, "/metrics")[1]
    figures = dict(line.split() for line in text.splitlines() if not line.startswith("#"))
    assert int(figures["inference_blocks"]) == 256
    assert float(figures["inference_generated_tokens_total"]) > 0
    assert figures["inference_running"] == "0"


def test_new_weights_have_another_version_in_the_answers() -> None:
    served = Server(Service(engine()), "mini", ("127.0.0.1", 0))
    thread = served.start()
    own = {name: tensor.clone() for name, tensor in model().state_dict().items()}
    try:
        before = complete(served)
        served.service.update_weights(model(1).state_dict(), 3)
        after = complete(served)
        assert after["weight_version"] == 3
        assert after["choices"][0]["text"] != before["choices"][0]["text"]
    finally:
        served.service.update_weights(own)
        served.drain()
        thread.join()


def test_draining_finishes_what_was_begun_and_refuses_what_is_new() -> None:
    served = Server(Service(engine()), "mini", ("127.0.0.1", 0))
    thread = served.start()
    wanted = complete(served, max_tokens=300)["choices"]
    with ThreadPoolExecutor(2) as pool:
        begun = pool.submit(complete, served, max_tokens=300)
        wait(lambda: served.service.figures()["running"] == 1)
        draining = pool.submit(served.drain)
        wait(lambda: served.service.draining)
        assert ask(served, "/v1/completions", {"prompt": "a"})[0] == 503
        assert ask(served, "/health")[0] == 503
        assert begun.result()["choices"] == wanted
        draining.result()
    thread.join()
    with pytest.raises(ConnectionError):
        ask(served, "/health")


def raw(server: Server, text: bytes, wait_s: float = 10) -> bytes:
    """What the server says to these bytes until it closes, or for so long."""
    with socket.create_connection(server.server_address[:2], timeout=wait_s) as connection:
        connection.sendall(text)
        said = b""
        try:
            while block := connection.recv(65536):
                said += block
        except TimeoutError:
            pass
    return said


def headed(length: str, body: bytes, path: str = "/v1/completions") -> bytes:
    """A request as bytes; its length may be wrong."""
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


BODIES = {
    "half of a surrogate pair": b'{"prompt": "\\ud800"}',
    "bytes that are no UTF-8": b'{"prompt": "\xff"}',
    "a number that is none": b'{"prompt": "a", "temperature": NaN}',
    "nesting": b'{"prompt": ' + b"[" * 100_000,
    "a number without end": b'{"prompt": "a", "seed": ' + b"9" * 100_000 + b"}",
    "no object": b"[1]",
    "nothing": b"",
    "a prompt beyond the context": json.dumps({"prompt": "a" * 4_000_000}).encode(),
    "a chat beyond the context": json.dumps(
        {"messages": [{**HELLO[0], "content": "a" * 4_000_000}]}
    ).encode(),
    "millions of wrong messages": b'{"messages":[' + b"1," * 1_000_000 + b"1]}",
    "millions of wrong parts": b'{"messages":[{"role":"user","content":['
    + b"1," * 1_000_000
    + b"1]}]}",
    "a hundred thousand unknown fields": b"{%s}"
    % b",".join(b'"k%d":1' % k for k in range(100_000)),
    "more tools than may be": json.dumps({"messages": HELLO, "tools": [TOOL] * 129}).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_wrong_body_is_refused_at_once_and_nothing_is_traced(server, name, capfd) -> None:
    body = BODIES[name]
    path = "/v1/chat/completions" if b"messages" in body[:20] else "/v1/completions"
    began = time.monotonic()
    said = raw(server, headed(str(len(body)), body, path))
    assert said.startswith(b"HTTP/1.1 400"), said[:200]
    assert time.monotonic() - began < 2
    assert "Traceback" not in capfd.readouterr().err


HEADS = {
    "a length that is no number": (headed("x", b"{}"), b"400"),
    "a negative length": (headed("-1", b"{}"), b"400"),
    "two lengths": (headed("2\r\nContent-Length: 3", b"{}"), b"400"),
    "a length that is too short": (headed("5", b'{"prompt": "a"}'), b"400"),
    "more than may be": (headed(str(9 << 20), bytes(9 << 20)), b"413"),
    "far more than may be": (headed("99999999", b"{"), b"413"),
    "no HTTP": (b"\x16\x03\x01\x00" * 10 + b"\r\n\r\n", b"400"),
    "a header without end": (b"GET / HTTP/1.1\r\nA: " + b"a" * 100_000, b"400"),
    "another method": (b"BREW /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"405"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_wrong_request_is_refused_at_once(server, name, capfd) -> None:
    text, status = HEADS[name]
    assert raw(server, text)[9:12] == status
    assert "Traceback" not in capfd.readouterr().err


def test_more_idle_connections_than_select_can_watch_disturb_nobody(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("fewer open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    with contextlib.ExitStack() as idle:
        for _ in range(1100):
            idle.enter_context(socket.create_connection(server.server_address[:2], timeout=10))
        assert complete(server, max_tokens=1)["choices"]


@pytest.mark.parametrize(
    "text",
    [b"", b"GET /health HT", headed("10", b"{"), headed("10", b"") * 2],
    ids=["nothing", "half a head", "half a body", "no body"],
)
def test_a_slow_client_is_not_held(server: Server, text: bytes, monkeypatch) -> None:
    monkeypatch.setattr("reference.inference.server.SLOW_S", 0.2)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        raw(server, text)
    assert time.monotonic() - began < 3


def test_who_does_not_read_its_stream_is_not_held(server: Server, monkeypatch) -> None:
    monkeypatch.setattr("reference.inference.server.SLOW_S", 0.2)
    cancelled = server.service.engine.counts.finished.get("cancelled", 0)
    server._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    asked = {"prompt": "a", "max_tokens": 4000, "temperature": 0, "stream": True, "logprobs": 20}
    body = json.dumps(asked).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(server.server_address[:2])
        connection.sendall(headed(str(len(body)), body))
        wait(lambda: server.service.figures()["running"] == 1)
        wait(lambda: server.service.figures()["running"] == 0)
    assert server.service.engine.counts.finished["cancelled"] == cancelled + 1


def test_with_a_key_only_who_sends_it_is_answered() -> None:
    served = Server(Service(engine()), "mini", ("127.0.0.1", 0), "secret")
    thread = served.start()
    body = b'{"prompt": "a", "max_tokens": 1}'
    request = headed(str(len(body)), body)
    try:
        for sent, status in ((b"secret", b"200"), (b"Secret", b"401"), (b"", b"401")):
            key = b"Host: a\r\nAuthorization: Bearer " + sent + b"\r\n"
            assert raw(served, request.replace(b"Host: a\r\n", key))[9:12] == status
        assert raw(served, request)[9:12] == b"401"
        assert ask(served, "/v1/models")[0] == 401
        assert ask(served, "/health")[0] == 200
    finally:
        served.drain()
        thread.join()


def wait(come, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not come():
        assert time.monotonic() < end
        time.sleep(0.01)
