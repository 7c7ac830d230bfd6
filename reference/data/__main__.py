"""Pre-training data: `python -m reference.data build CONFIG [--set a.b=value ...] [--resume]`,
`check FOLDER`, `show FOLDER`.

`build` makes shards from raw files, `check` compares every file that training reads with its
checksum, `show` says what a build holds. With `--json` a document on stdout.

Exit codes: 0 done, 1 a bug, 2 usage, or a damaged folder, 3 invalid configuration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference.data.pipeline import build
from reference.data.spec import BuildSpec
from reference.data.stage import report_line
from reference.ending import answer, exit_code, say
from reference.text.packing import damages, read_manifest
from twin.errors import Problem, UsageError
from twin.loading.load import load_config

_STOPPED = "stopped; what was finished stays, and `--resume` goes on"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(arguments), _STOPPED)


def _command(arguments: Sequence[str] | None) -> int:
    words = _parser().parse_args(arguments)
    return words.verb(words)


def _build(words: argparse.Namespace) -> int:
    path = Path(words.config)
    if not path.is_file():
        wrong = f"there is no build configuration `{words.config}`"
        raise UsageError([Problem("TW230", "", wrong, "give a YAML file")])
    spec = load_config(BuildSpec, path, words.set)
    existing = "resume" if words.resume else "fresh" if words.fresh else "refuse"
    manifest = build(spec, existing=existing, tell=say)
    answer(manifest, [f"done: `{spec.output}`", *_lines(manifest)], as_json=words.json)
    return 0


def _check(words: argparse.Namespace) -> int:
    folder = Path(words.folder)
    found = damages(folder, read_manifest(folder))
    if found:
        raise UsageError(found)
    told = f"`{folder}`: every checksum is right"
    answer({"version": 1, "damages": []}, [told], as_json=words.json)
    return 0


def _show(words: argparse.Namespace) -> int:
    manifest = read_manifest(Path(words.folder))
    answer(manifest, _lines(manifest), as_json=words.json)
    return 0


def _demo(words: argparse.Namespace) -> int:
    from reference.data.demo import demo  # noqa: PLC0415 - torch and the model

    report = demo(Path(words.output), words.steps, say)
    answer(report, [f"{key}: {value}" for key, value in report.items()], as_json=words.json)
    return 0


def _lines(manifest: dict[str, Any]) -> list[str]:
    """Stages with what each left out, the mixture with its epochs, and the shards."""
    lines: list[str] = []
    for name, report in manifest["stages"].items():
        lines.append(report_line(name, report))
        lines += [
            f"  {row['source']}: {row['documents']:,} {row['reason']}, first {row['first']}"
            for row in report.get("left_out", [])
        ]
    for row in manifest["mixture"]["domains"]:
        read = f"{row['tokens']:,} tokens, {row['epochs']:.2f} epochs of {row['available']:,}"
        lines.append(f"{row['domain']}: weight {row['weight']:.3f}, {read}")
    capped = manifest["mixture"]["capped_by"]
    if capped:
        lines.append(f"fewer tokens than asked for: `{capped}` would be read too often")
    for side in ("training", "held_out"):
        rows = manifest[side]
        tokens = sum(row["tokens"] for row in rows)
        counts = manifest["sides"][side]
        texts = f"{counts['documents']:,} documents, {counts['rewrites']:,} of them rewritten"
        lines.append(f"{side}: {tokens:,} tokens in {len(rows)} shards; {texts}")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reference.data", description="Training data.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    made = verbs.add_parser("build", help="raw files to shards, in resumable stages")
    made.add_argument("config", metavar="CONFIG", help="a YAML file")
    made.add_argument("--set", metavar="A.B=VALUE", action="append", default=[])
    held = made.add_mutually_exclusive_group()
    held.add_argument("--resume", action="store_true", help="go on with the folder's build, if any")
    held.add_argument("--fresh", action="store_true", help="delete the folder's build, and begin")
    made.set_defaults(verb=_build)
    for name, verb, told in (
        ("check", _check, "compare every checksum of a build"),
        ("show", _show, "say what a build holds"),
    ):
        other = verbs.add_parser(name, help=told)
        other.add_argument("folder", metavar="FOLDER")
        other.set_defaults(verb=verb)
    shown = verbs.add_parser("demo", help="build, rephrase, train nano and evaluate, end to end")
    shown.add_argument("--output", default="runs/data-demo", help="folder; goes on where it was")
    shown.add_argument("--steps", type=int, default=100, help="training steps")
    shown.set_defaults(verb=_demo)
    for one in verbs.choices.values():
        one.add_argument("--json", action="store_true", help="a JSON document on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main())
