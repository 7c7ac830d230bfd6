"""`python -m reference.generate --generator GENERATOR --prompt TEXT`: try a generator, which is
`rules`, http://HOST/v1, the folder of a training run, or MODULE:FUNCTION of an engine.

The reply goes to standard output, tokens and cost to standard error. Exit codes: 0 a reply, 2 none
could be had or the command is wrong, 3 a setting is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from reference.dialog import Message
from reference.generate.choose import choose
from reference.generate.request import Reply, Request, Sampling
from reference.generate.server import ServerSpec
from twin.errors import Problem, ScenarioError, TwinError


def main(words: Sequence[str] | None = None) -> int:
    """The exit code; the reply is printed."""
    asked = _parser().parse_args(words)
    try:
        spec, sampling, metadata = _settings(asked)
        generator = choose(asked.generator, spec)
        messages = [Message("system", asked.system)] if asked.system else []
        request = Request((*messages, Message("user", asked.prompt)), (), sampling, metadata)
        if asked.stream:
            found = _streamed(generator, request)
        else:
            found = generator.complete(request)
            _tell(_json(found) if asked.json else found.text)
        sys.stderr.write(f"{json.dumps(asdict(generator.account.total))}\n")
    except TwinError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _streamed(generator: Any, request: Request) -> Reply:
    found = None
    for piece in generator.stream(request):
        sys.stdout.write(piece.text)
        sys.stdout.flush()
        found = piece.reply or found
    _tell("")
    assert found is not None
    return found


def _json(reply: Reply) -> str:
    return json.dumps({"version": 1, **asdict(reply)}, indent=1, ensure_ascii=False)


def _settings(asked: argparse.Namespace) -> tuple[ServerSpec | None, Sampling, dict[str, Any]]:
    """The server's settings, the sampling and the metadata, from `--set` and `--kind`."""
    given: dict[str, dict[str, Any]] = {"server": {}, "sampling": {}, "metadata": {}}
    for text in asked.set:
        path, _, value = text.partition("=")
        section, _, name = path.partition(".")
        if section not in given or not name:
            message, fix = f"`{text}` sets nothing", "write server.a=1, sampling.a=1, metadata.a=1"
            raise ScenarioError([Problem("TW559", "--set", message, fix)])
        given[section][name] = _value(value)
    if asked.kind:
        given["metadata"]["kind"] = asked.kind
    remote = asked.generator.startswith(("http://", "https://"))
    try:
        spec = ServerSpec(**{"url": asked.generator, **given["server"]}) if remote else None
        return spec, Sampling(**given["sampling"]), given["metadata"]
    except ValidationError as error:
        problems = [
            Problem("TW559", f"--set ...{'.'.join(map(str, one['loc']))}", one["msg"])
            for one in error.errors()
        ]
        raise ScenarioError(problems) from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.generate", description="Ask a generator for one reply."
    )
    parser.add_argument(
        "--generator",
        default="rules",
        help="`rules`, a server's address, a run's folder, or MODULE:FUNCTION",
    )
    parser.add_argument("--prompt", required=True, help="what the user says")
    parser.add_argument("--system", default="", help="the system message")
    parser.add_argument("--kind", help="what rules should do, such as echo or rephrase")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", help="such as server.model=x"
    )
    parser.add_argument("--stream", action="store_true", help="print the reply as it is written")
    parser.add_argument("--json", action="store_true", help="the whole reply as a JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main())
