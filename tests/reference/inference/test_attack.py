"""Mutated requests: each has an answer that is no failure of ours, soon, and nothing runs on."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reference.inference.engine import Service
from reference.inference.server import Server
from tests.reference.inference.small import engine
from tests.reference.inference.test_server import TOOL, ask, wait

FORM = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1},
        "b": {"anyOf": [{"type": "null"}, {"enum": [1, "2"]}]},
    },
    "required": ["a"],
    "$defs": {"x": {"type": ["string", "integer"], "maxLength": 3}},
}
CALL = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
COMMON = {"temperature": 1.0, "top_p": 0.9, "top_k": 5, "seed": 3, "n": 2, "max_tokens": 5}
REQUESTS: dict[str, Any] = {
    "/v1/completions": {**COMMON, "prompt": "def f", "stop": "x", "logprobs": 2, "stream": True},
    "/v1/chat/completions": {
        **COMMON,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "x", "content": "2"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": FORM}},
        "logprobs": True,
        "top_logprobs": 2,
    },
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**64, -(2**63) - 1, 10**30, 1.5, 1e308, -0.0, 1e-320),
    *("", "a", "\0", "\U0001f600", "x" * 5000, "<|im_end|>", "none", "required", "object", "NaN"),
    *([], [[]], [None], {}, {"a": 1}, [1, 2, 3], {"$ref": "#/$defs/x"}, ["object"], [[1] * 5]),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below the root."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield (*path, key)
        yield from places(node[key], (*path, key))


def mutated(draw: random.Random, body: Any) -> Any:
    """The body with one to three values replaced, left out or added."""
    body = copy.deepcopy(body)
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = list(places(body))
        *above, last = draw.choice(found) if found else ("a",)
        node = body
        for key in above:
            node = node[key]
        way = draw.random()
        if way < 0.15 and found:
            del node[last]
        elif way < 0.3 and isinstance(node, dict):
            node[draw.choice(("a", "$ref", "type", "n", "constrained"))] = draw.choice(ODD)
        else:
            node[last] = copy.deepcopy(draw.choice(ODD))
    return body


@pytest.mark.parametrize(
    ("seed", "requests"), [(1, 60), pytest.param(2, 2000, marks=pytest.mark.slow)]
)
def test_a_mutated_request_is_answered_or_refused(seed: int, requests: int) -> None:
    served = Server(Service(engine(blocks=256)), "mini", ("127.0.0.1", 0))
    thread, draw = served.start(), random.Random(seed)
    try:
        for _ in range(requests):
            path = draw.choice(list(REQUESTS))
            body = mutated(draw, REQUESTS[path])
            began = time.monotonic()
            status, answer = ask(served, path, body)
            assert status in (200, 400, 404), (seed, path, body, answer)
            assert "server_error" not in str(answer), (seed, path, body, answer)
            assert time.monotonic() - began < 5, (seed, path, body)
        wait(lambda: served.service.figures()["running"] == 0)
    finally:
        served.drain()
        thread.join()
