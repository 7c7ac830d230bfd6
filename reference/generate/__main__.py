"""`python -m reference.generate --generator GENERATOR --prompt TEXT`: one reply of a generator.

GENERATOR is `rules`, http://HOST/v1, the folder of a training run, or MODULE:FUNCTION of an engine.
The reply goes to standard output, tokens and cost to standard error. Exit codes: 0 a reply, 2 no
reply or wrong usage, 3 a wrong setting.
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
from reference.generate.request import ChatRequest, Sampling
from reference.generate.server import ServerSpec
from twin.errors import Problem, ScenarioError, TwinError


def main(words: Sequence[str] | None = None) -> int:
    """Print the reply and return the exit code."""
    options = _parser().parse_args(words)
    try:
        spec, sampling, metadata = _settings(options)
        generator = choose(options.generator, spec)
        messages = [Message("system", options.system)] if options.system else []
        request = ChatRequest((*messages, Message("user", options.prompt)), (), sampling, metadata)
        if options.stream:
            _streamed(generator, request)
        else:
            reply = generator.complete(request)
            whole = {"version": 1, **asdict(reply)}
            shown = json.dumps(whole, indent=1, ensure_ascii=False)
            _print(shown if options.json else reply.text)
        sys.stderr.write(f"{json.dumps(asdict(generator.account.total))}\n")
    except TwinError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _streamed(generator: Any, request: ChatRequest) -> None:
    for piece in generator.stream(request):
        sys.stdout.write(piece.text)
        sys.stdout.flush()
    _print("")


def _settings(options: argparse.Namespace) -> tuple[ServerSpec | None, Sampling, dict[str, Any]]:
    """The server's settings, the sampling and the metadata, from `--set` and `--kind`."""
    given: dict[str, dict[str, Any]] = {"server": {}, "sampling": {}, "metadata": {}}
    for text in options.set:
        path, _, value = text.partition("=")
        section, _, name = path.partition(".")
        if section not in given or not name:
            message, fix = f"`{text}` sets no field", "write server.a=1, sampling.a=1, metadata.a=1"
            raise ScenarioError([Problem("TW559", "--set", message, fix)])
        given[section][name] = _value(value)
    if options.kind:
        given["metadata"]["kind"] = options.kind
    remote = options.generator.startswith(("http://", "https://"))
    try:
        spec = ServerSpec(**{"url": options.generator, **given["server"]}) if remote else None
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


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.generate", description="Ask a generator for one reply."
    )
    parser.add_argument(
        "--generator",
        default="rules",
        help="`rules`, a server's address, a run's folder or MODULE:FUNCTION [default: rules]",
    )
    parser.add_argument("--prompt", required=True, help="the user message")
    parser.add_argument("--system", default="", help="the system message")
    parser.add_argument("--kind", help="kind of request for `rules`, such as echo or rephrase")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="A.B=VALUE",
        help="set a field",
    )
    parser.add_argument("--stream", action="store_true", help="print the reply in pieces")
    parser.add_argument("--json", action="store_true", help="print the whole reply as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
