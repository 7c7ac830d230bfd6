"""Answers without HTTP are those of the server, and free answers are what the model wrote."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from reference.dialog import Message
from reference.generate import choose
from reference.generate.choose import EngineGenerator
from reference.generate.request import ChatRequest, Reply, Sampling, complete_many
from reference.generate.server import Server as Client
from reference.generate.server import ServerSpec
from reference.inference.engine import Service
from reference.inference.local import LocalChat
from reference.inference.openai.api import ChatChoice
from reference.inference.request import GeneratedToken, Update
from reference.inference.server import Server
from reference.text.template import Segment, parse_answer, segments_of
from tests.reference.inference.small import VOCABULARY, engine
from twin.errors import UsageError

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service(engine(blocks=128, queue=2, running=2))
    yield made
    made.drain()


def _ask(seed: int = 1, tools: tuple[Any, ...] = (TOOL,), **fields: Any) -> ChatRequest:
    sampling = Sampling(temperature=1.5, max_tokens=24, seed=seed, **fields)
    return ChatRequest((Message("user", "hello"),), tools, sampling)


def _last(generator: Any, request: ChatRequest) -> Reply:
    (found,) = [piece.reply for piece in generator.stream(request) if piece.reply]
    return found


def test_http_and_this_process_answer_alike_whole_and_streamed(service: Service) -> None:
    server = Server(service, "mini", ("127.0.0.1", 0))
    thread = server.start()
    remote = Client(ServerSpec(url=f"{server.url}/v1", model="mini", at_once=1))
    local = EngineGenerator(LocalChat(service, "mini"))
    try:
        for seed in range(1, 3):
            request = _ask(seed, logprobs=True)
            wanted, found = remote.complete(request), local.complete(request)
            assert found.raw is not None
            assert (found.text, found.calls, found.tokens) == (
                wanted.text,
                wanted.calls,
                wanted.tokens,
            )
            assert (found.finish, found.logprobs) == (wanted.finish, wanted.logprobs)
            assert _last(local, request) == found
            assert _last(remote, request).text == found.text
    finally:
        server.close()
        thread.join()
    assert remote.account.total.reply_tokens == local.account.total.reply_tokens


def test_a_free_answer_may_hold_any_marker_and_streams_to_the_same(service: Service) -> None:
    free = EngineGenerator(LocalChat(service, "mini", constrained=False))
    unread = {"type": "function", "function": {"name": "f", "parameters": {"minimum": "x"}}}
    raws = []
    for seed in range(4):
        request = _ask(seed, (unread,))
        found = free.complete(request)
        assert found == _last(free, request)
        assert found.raw is not None
        wanted = parse_answer(segments_of(found.raw))
        assert (found.text, found.calls) == (wanted.content, wanted.calls)
        raws.append(found.raw)
    assert any(one.marker for raw in raws for one in segments_of(raw)[:-1])
    with pytest.raises(UsageError, match="TW551"):
        EngineGenerator(LocalChat(service, "mini")).complete(_ask(0, (unread,)))


def test_calls_between_markers_are_read_from_what_a_model_wrote(service: Service) -> None:
    api = LocalChat(service, "mini", constrained=False)._api
    said = "Well.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
    said += '<|tool_call_argument_begin|>{"a": <|tool_call_end|><|tool_call_begin|>cut off'
    body = {"messages": [{"role": "user", "content": "x"}], "constrained": False}
    choice = ChatChoice(VOCABULARY, api.read_chat({**body, "return_raw": True}), 0)
    ids = VOCABULARY.ids(segments_of(said))
    told = [GeneratedToken(token, 0.0, 0.0, (), 0) for token in ids]
    streamed = [
        document
        for at, one in enumerate(told, 1)
        for document in choice.add(
            Update(
                0,
                0,
                one,
                VOCABULARY.piece(one.token).decode(),
                "stop" if at == len(told) else None,
            )
        )
    ]
    whole = choice.whole()
    (call,) = whole["message"]["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"a":'}
    assert (whole["message"]["content"], whole["raw"]) == ("Well.", said)
    assert [one for one in streamed if "tool_calls" in one["delta"]] == streamed[-1:]
    assert segments_of(said)[0] == Segment("Well.")


def test_more_requests_than_the_queue_holds_wait(service: Service) -> None:
    local = EngineGenerator(LocalChat(service, "mini"))
    found = complete_many(local, [_ask(seed, ()) for seed in range(7)], 7)
    assert all(isinstance(one, Reply) for one in found)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(local.complete, [_ask(0, ()), _ask(1, ())])) == found[:2]


def test_what_the_engine_cannot_serve_has_the_codes_of_a_server(service: Service) -> None:
    local = LocalChat(service, "mini")
    long = ChatRequest((Message("user", "x" * local.capacity),))
    with pytest.raises(UsageError, match="TW552"):
        EngineGenerator(local).complete(long)
    form = {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json"}}
    with pytest.raises(UsageError, match="TW551"):
        LocalChat(service, "mini", constrained=False).chat(form)
    other = Service(engine())
    other.drain()
    with pytest.raises(UsageError, match="TW550"):
        EngineGenerator(LocalChat(other, "mini")).complete(_ask())


def test_a_folder_that_holds_no_run_is_no_generator(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="TW491"):
        choose.choose(str(tmp_path))
