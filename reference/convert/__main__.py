"""`python -m reference.convert to-hf|from-hf SRC DST`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from reference.ending import exit_code
from twin.units import format_quantity

TYPES = {"bf16": "bfloat16", "fp32": "float32"}


def main(words: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _convert(_parser().parse_args(words)))


def _convert(asked: argparse.Namespace) -> int:
    import torch  # noqa: PLC0415  a second to load: `--help` and misspelled options go without

    from reference.convert.hugging_face import from_hf, to_hf  # noqa: PLC0415  load torch too

    convert = to_hf if asked.way == "to-hf" else from_hf
    dtype = getattr(torch, TYPES[asked.dtype]) if asked.dtype else None
    done = convert(asked.source, asked.target, dtype)
    size = format_quantity(done.bytes, "bytes")
    sys.stdout.write(f"{asked.target}: {done.model.name}, {done.tensors:,} tensors, {size}\n")
    sys.stdout.writelines(f"{note}\n" for note in done.notes)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.convert",
        description="Convert a model to or from a Hugging Face folder (DeepSeek-V3, Kimi K2, "
        "Llama, Qwen3), tensor by tensor.",
    )
    parser.add_argument(
        "way", choices=("to-hf", "from-hf"), help="to Hugging Face's form, or from it"
    )
    parser.add_argument(
        "source",
        metavar="SRC",
        type=Path,
        help="the folder to read; to-hf also takes a run of the trainer, or one of its checkpoints",
    )
    parser.add_argument("target", metavar="DST", type=Path, help="the folder to make")
    parser.add_argument(
        "--dtype", choices=tuple(TYPES), help="of the weights; as stored, FP8 as bf16, if left out"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
