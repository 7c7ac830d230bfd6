"""`python -m reference.inference CHECKPOINT`: serves until SIGTERM or SIGINT, which drain."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from reference.ending import ending_on_signals, exit_code, say, section_of, section_options
from reference.inference.engine import Engine, Service
from reference.inference.local import DTYPES, load_engine
from reference.inference.server import Server
from reference.inference.spec import EngineSpec
from twin.errors import Problem, UsageError

_OPTIONS = [name for name in EngineSpec.model_fields if name != "share_prefixes"]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code, those of `reference.train`."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    torch.set_num_threads(words.threads)
    spec = section_of(EngineSpec, {name: getattr(words, name) for name in _OPTIONS}, "TW493")
    engine = load_engine(words.checkpoint, spec, words.precision)
    name = words.name or words.checkpoint.absolute().name
    with ending_on_signals() as stop:
        server = _listening(engine, name, (words.host, words.port), words.api_key)
        serving = server.start()
        tokens = spec.blocks * spec.block_tokens
        shown = f"{tokens:,} tokens, {engine.cache.bytes / 1e6:.1f} MB of cache"
        say(f"serving `{name}` at {server.url}: {shown}")
        if words.host not in ("127.0.0.1", "::1", "localhost") and words.api_key is None:
            say("whoever reaches this address can use it: name an `--api-key`")
        while stop.signal is None and serving.is_alive():
            time.sleep(0.05)
        say("draining: what was begun is finished, what is new is refused")
        server.drain()
        serving.join()
    return stop.exit_code


def _listening(engine: Engine, name: str, address: tuple[str, int], key: str | None) -> Server:
    try:
        return Server(Service(engine), name, address, key)
    except OSError as error:
        message = f"cannot listen at {address[0]}:{address[1]}: {error.strerror}"
        raise UsageError([Problem("TW492", "port", message, "name another `--port`")]) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.inference",
        description="Serve a trained model over an OpenAI-compatible HTTP interface.",
    )
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", type=Path, help="a run's folder")
    add("--host", default="127.0.0.1", help="listen at this address [127.0.0.1]")
    add("--port", type=int, default=8000, help="listen at this port; 0: any free [8000]")
    add(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("INFERENCE_API_KEY"),
        help="ask clients for this key [the environment's INFERENCE_API_KEY, else none]",
    )
    add("--name", help="name the model [the folder's name]")
    add("--threads", type=int, default=1, help="set the CPU threads of a step [1]")
    add("--precision", choices=list(DTYPES), help="set the dtype [the run's]")
    section_options(parser, EngineSpec, _OPTIONS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
