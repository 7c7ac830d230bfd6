"""With a model's server as agent, user and judge everything works as with rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import pytest

from reference.agentic.environment import Budget, play
from reference.agentic.run import best, candidates
from reference.agentic.spec import PlaySpec
from reference.dialog import message_json, message_of
from reference.generate.request import ChatRequest, Sampling
from reference.generate.rules import RuleGenerator
from reference.generate.server import Server, ServerSpec
from tests.reference.agentic.worlds import asking, right


class Host(ThreadingHTTPServer):
    """Answers chats as rules do that know a task's plan: a model that understood the words."""

    daemon_threads = True

    def __init__(self, hints: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hints = hints
        self.bodies: list[Any] = []

    def server_bind(self) -> None:
        """Without the look-up of its name."""
        TCPServer.server_bind(self)

    def reply(self, body: Any) -> dict[str, Any]:
        messages = tuple(message_of(one) for one in body["messages"])
        if "You judge" in messages[0].content:
            return {"role": "assistant", "content": 'Fine. {"score": 0.9}'}
        if not body.get("tools"):
            return {"role": "assistant", "content": "<END>"}
        sampling = Sampling(seed=body.get("seed", 0))
        asked = ChatRequest(messages, tuple(body["tools"]), sampling, self.hints)
        said = message_json(RuleGenerator().complete(asked).message())
        for at, call in enumerate(said.get("tool_calls", ())):
            call["id"] = f"call_{at}"
        return said


class _Handler(BaseHTTPRequestHandler):
    server: Host

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        said = self.server.reply(body)
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        text = json.dumps({"choices": [choice], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name
        """Quiet."""


@pytest.fixture
def host() -> Iterator[Host]:
    """A server for the first task with one goal that changes something."""
    made = Host(asking(goals=1, changes=True, withheld=False).hints)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_model_behind_http_plays_as_rules_do(host: Host) -> None:
    environment = asking(goals=1, changes=True, withheld=False)
    server = Server(ServerSpec(url=f"http://127.0.0.1:{host.server_address[1]}/v1"))
    own = right(environment)
    seeds = range(60)
    found = next(
        one
        for seed in seeds
        if (one := play(environment, server, Budget(sampling=Sampling(seed=seed)))).verdict.success
    )
    assert found.dialog == own.dialog
    assert all("metadata" not in body and "hints" not in body for body in host.bodies)
    assert not any(json.dumps(host.hints["steps"]) in json.dumps(body) for body in host.bodies)


def test_a_model_may_be_user_and_judge(host: Host) -> None:
    server = Server(ServerSpec(url=f"http://127.0.0.1:{host.server_address[1]}/v1"))
    environment = replace(asking(goals=1, changes=True, withheld=False), user=server)
    found = candidates(environment, RuleGenerator(), server, PlaySpec(candidates=8))
    kept = best(found)
    assert kept is not None
    assert kept.rubric == 0.9
    assert kept.trajectory.ended == "user"
