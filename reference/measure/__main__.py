"""`python -m reference.measure`: measure the device at hand and write its parts of a catalog."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from twin.errors import TwinError


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, or that of the error that is told on stderr."""
    options = _parser().parse_args(words)
    # torch takes more than a second to load: `--help` and misspelled options go without.
    from reference.measure.run import MeasureRequest, run, summary, text  # noqa: PLC0415

    fields = vars(options)
    between, seconds, as_json = (fields.pop(name) for name in ("between", "time", "json"))
    try:
        if between is not None:
            return _between(between, options.output, seconds)
        result = run(MeasureRequest(**fields), _tell)
    except TwinError as error:
        _clear()
        if as_json:
            problems = [problem.as_dict() for problem in error.problems]
            sys.stdout.write(json.dumps({"problems": problems}, indent=2) + "\n")
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        _clear()
        sys.stderr.write("stopped; groups that had ended are kept\n")
        return 130
    _clear()
    shown = json.dumps(summary(result), indent=2) if as_json else text(result)
    sys.stdout.write(shown + "\n")
    return 0


def _between(config: Path, output: Path | None, seconds: float) -> int:
    """Measure in turns with steps."""
    from reference.measure.rounds import measure_rounds  # noqa: PLC0415

    folder = output or Path("measured") / config.stem
    found = measure_rounds(config, folder, seconds, lambda text: sys.stderr.write(f"{text}\n"))
    sys.stdout.write(f"{len(found)} rounds in {folder}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.measure",
        description="Time kernels, copies, collectives and training steps of the device at hand, "
        "and write a GPU, a node and a calibration profile that scenarios can name.",
        epilog="Groups: launch, bandwidth, gemm, grouped, attention, optimizer, copies, "
        "host, collectives, streams, sustained, steps, serving. Earlier ones in the folder stay.",
    )
    add = parser.add_argument
    add("--device", default="auto", help="measure auto, cpu or cuda [auto]")
    add("--model", help="take its shapes [kimi-k2 on a GPU, kimi-k2-nano on a CPU]")
    add("--output", type=Path, help="write to this folder [measured/NAME]")
    add("--only", type=_names, default=(), help="measure these groups, with commas between [all]")
    add("--quick", action="store_true", help="measure few shapes, in seconds")
    add("--seconds", type=float, help="limit the seconds of one shape")
    add("--name", help="name the parts that are written")
    add("--threads", type=int, default=1, help="set the threads of a CPU [1]")
    add("--company", action="store_true", help="keep the other cores at work, as other ranks do")
    add("--between", type=Path, help="alternate with steps of this reference.train run, on a CPU")
    add("--time", type=float, default=120, help="limit the seconds of --between [120]")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _tell(what: str, done: int, total: int, left: float) -> None:
    """One line on stderr, written over where it is a terminal."""
    if sys.stderr.isatty():
        line = f"{done + 1}/{total}, {left:.0f} s left: {what}"
        sys.stderr.write(f"\r\x1b[2K{line[:100]}")
        sys.stderr.flush()
    elif done % 20 == 0:
        sys.stderr.write(f"{done + 1}/{total}, {left:.0f} s left: {what}\n")


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[2K")


if __name__ == "__main__":
    sys.exit(main())
