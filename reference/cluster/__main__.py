"""`python -m reference.cluster`: run a program on the ranks of a cluster of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from reference.cluster.launch import LaunchResult, RankProgram, launch
from reference.cluster.namespaces import LocalCluster, obstacle
from reference.ending import say
from twin import units
from twin.errors import Problem, TwinError, UsageError

MOST_NODES = 64
"""OURS: an address counts nodes in one byte, and more ranks than that start for minutes."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, that of the rank at fault, or of a usage error, which is told on stderr."""
    options = _parser().parse_args(words)
    try:
        cluster, program = _asked(options)
        shaped = not options.loopback
        missing = obstacle() if shaped else ""
        if missing:
            shaped = False
            say(f"no links of a declared rate here ({missing}); the ranks talk over loopback")
        outcome = launch(cluster, program, shaped=shaped)
    except TwinError as error:
        say(str(error))
        return error.exit_code
    _tell(outcome)
    return outcome.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.cluster",
        usage="%(prog)s [options] -- PROGRAM [ARGUMENT ...]",
        description="Runs PROGRAM (a module or a .py file) on every rank of a cluster that this "
        "machine plays: nodes are network namespaces, joined by links of a declared rate.",
        epilog="Links need root and iproute2; without them the ranks talk over loopback.",
    )
    parser.add_argument("--nodes", type=int, default=2, help="nodes; 2")
    parser.add_argument("--ranks-per-node", type=int, default=1, help="ranks on each; 1")
    parser.add_argument("--rate", help="of a rank's link, each way, such as 1Gbps; not held to any")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, no links")
    parser.add_argument("--pin", action="store_true", help="each rank to a core, in turn")
    parser.add_argument("program", help="a module or a .py file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    return parser


def _asked(options: argparse.Namespace) -> tuple[LocalCluster, RankProgram]:
    """What to run on what. Raises UsageError with all that is wrong."""
    problems = [*_counts(options), *_runnable(options.program)]
    rate: float | None = None
    try:
        rate = units.parse(options.rate, "bytes_per_s") if options.rate else None
    except units.QuantityError as error:
        problems.append(Problem("TW321", "--rate", str(error), error.hint))
    if problems:
        raise UsageError(problems)
    cluster = LocalCluster(options.nodes, options.ranks_per_node, rate)
    return cluster, RankProgram(options.program, tuple(options.arguments), pinned=options.pin)


def _counts(options: argparse.Namespace) -> list[Problem]:
    counts = {"--nodes": options.nodes, "--ranks-per-node": options.ranks_per_node}
    return [
        Problem("TW321", name, f"{count} is no number from 1 to {MOST_NODES}", f"{name} 2")
        for name, count in counts.items()
        if not 1 <= count <= MOST_NODES
    ]


def _runnable(program: str) -> list[Problem]:
    if program.endswith(".py"):
        found = Path(program).is_file()
    else:
        try:
            found = find_spec(program) is not None
        except ModuleNotFoundError:
            found = False
    if found:
        return []
    message = f"there is no module and no file `{program}`"
    return [Problem("TW322", "PROGRAM", message, "a module such as reference.train, or a .py file")]


def _tell(outcome: LaunchResult) -> None:
    fault = outcome.fault
    if fault is None:
        return
    say(f"{fault}; the others were ended")
    if fault.rank:  # what rank 0 said has been seen
        say("\n".join(f"  {line}" for line in fault.last_lines))


if __name__ == "__main__":
    sys.exit(main())
