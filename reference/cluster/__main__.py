"""`python -m reference.cluster`: run a program on the ranks of a cluster of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from reference.cluster.launch import RankProgram, launch
from reference.cluster.namespaces import LocalCluster, obstacle
from reference.ending import exit_code, say
from twin import units
from twin.errors import Problem, UsageError

MOST_NODES = 64
"""OURS: an address counts nodes in one byte, and more ranks than that start for minutes."""


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0, that of the rank at fault, or of a usage error, which is told on stderr."""
    return exit_code(lambda: _command(_parser().parse_args(words)))


def _command(options: argparse.Namespace) -> int:
    cluster, program = _asked(options)
    missing = "" if options.loopback else obstacle()
    if missing:
        say(f"no links of a declared rate here ({missing}); the ranks talk over loopback")
    result = launch(cluster, program, shaped=not (options.loopback or missing))
    if result.fault is not None:
        say(f"{result.fault}; the others were ended")
        if result.fault.rank:  # what rank 0 said has been seen
            say("\n".join(f"  {line}" for line in result.fault.last_lines))
    return result.code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.cluster",
        usage="%(prog)s [options] -- PROGRAM [ARGUMENT ...]",
        description="Run PROGRAM (a module or a .py file) on every rank of a cluster that this "
        "machine stands in for: nodes are network namespaces, joined by links of a declared rate.",
        epilog="Links need root and iproute2; without them the ranks talk over loopback.",
    )
    add = parser.add_argument
    add("--nodes", type=int, default=2, help="set the number of nodes [2]")
    add("--ranks-per-node", type=int, default=1, help="set the ranks on each node [1]")
    add("--rate", help="limit each rank's link, each way, such as 1Gbps [no limit]")
    add("--loopback", action="store_true", help="use loopback: no namespaces, no links")
    add("--pin", action="store_true", help="pin each rank to a core, in turn")
    add("program", help="a module or a .py file")
    add("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
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


if __name__ == "__main__":
    sys.exit(main())
