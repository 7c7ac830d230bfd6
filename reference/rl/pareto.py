"""`python -m reference.rl.pareto RUN ... [--of success,length] [--out FILE.html] [--json]`: the
Pareto front of several rewards, over runs with different weights.

A run is the folder of `python -m reference.rl`, judged by the means of its last iterations: the
rewards that it weighs, `success`, `score`, and `tokens`, the length of its responses. A name with a
minus is better the lower it is. A run is on the front where no other is as good in all of
them and better in one. Exit codes: 0 drawn, 1 a bug, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge
from pathlib import Path
from typing import Any, Final

from reference.ending import exit_code, say, write_file
from reference.metrics import NAME, read_lines
from twin.errors import Problem, UsageError
from twin.loading.tree import hint

_INK: Final = {True: "#1f6feb", False: "#8b949e"}
"""Of runs on the front, and of others."""


@dataclass(frozen=True, slots=True)
class RunPoint:
    """A run, and its means of several rewards."""

    name: str
    rewards: Mapping[str, float]


def point_of(folder: Path, last: int) -> RunPoint:
    """Means of a run's last iterations. Raises UsageError TW656 where it has none."""
    try:
        lines = read_lines(folder / NAME) if (folder / NAME).is_file() else []
    except (OSError, ValueError):
        lines = []
    iterations = [line for line in lines if line.get("kind") == "iteration"][-last:]
    rows = [row for line in iterations if (row := _rewards(line))]
    if not rows:
        message = f"`{folder}` has no iterations of `python -m reference.rl`"
        raise UsageError([Problem("TW656", "RUN", message, "name the folder of a run")])
    names = [name for name in rows[0] if all(name in line for line in rows)]
    means = {name: sum(line[name] for line in rows) / len(rows) for name in names}
    return RunPoint(folder.name, means)


def _rewards(line: Mapping[str, Any]) -> dict[str, float]:
    own = {"success": line.get("success"), "score": line.get("score"), "tokens": line.get("length")}
    rewards = {**own, **line.get("parts", {})}
    return {name: float(value) for name, value in rewards.items() if value is not None}


def front(points: Sequence[RunPoint], of: Sequence[str]) -> list[bool]:
    """Which points are on the front: no other is as good in all of `of` and better in one."""
    rows = [tuple(_worth(point, name) for name in of) for point in points]
    return [not any(other != row and all(map(ge, other, row)) for other in rows) for row in rows]


def _worth(point: RunPoint, name: str) -> float:
    """The reward, negative where less is better."""
    plain = name.removeprefix("-")
    if plain not in point.rewards:
        fix = hint(plain, tuple(point.rewards), "its rewards are those that it weighs")
        message = f"`{point.name}` has no reward `{plain}`"
        raise UsageError([Problem("TW656", "--of", message, fix)])
    return -point.rewards[plain] if name.startswith("-") else point.rewards[plain]


def figure(points: Sequence[RunPoint], of: Sequence[str], best: Sequence[bool]) -> Any:
    """The first two rewards as a plotly figure: all runs by name, those on the front joined.
    Raises UsageError TW657 where plotly is not installed."""
    try:
        import plotly.graph_objects as go  # noqa: PLC0415  the reference does without it elsewhere
    except ImportError:
        fix = "`pip install 'twin[ui]'`, or `--json` without `--out`"
        raise UsageError([Problem("TW657", "--out", "plotly is not installed", fix)]) from None
    x, y = _names(of[:2])
    made = go.Figure()
    for here, label in ((True, "on the front"), (False, "beaten by another")):
        some = [point for point, held in zip(points, best, strict=True) if held == here]
        some.sort(key=lambda point: point.rewards[x])
        made.add_scatter(
            x=[point.rewards[x] for point in some],
            y=[point.rewards[y] for point in some],
            text=[point.name for point in some],
            mode="lines+markers+text" if here else "markers+text",
            textposition="top center",
            name=label,
            marker={"color": _INK[here], "size": 10, "symbol": "circle" if here else "x"},
            line={"color": _INK[here], "shape": "hv" if len(of) == 2 else "linear"},
        )
    ways = {name.removeprefix("-"): "less" if name.startswith("-") else "more" for name in of}
    made.update_layout(
        title=f"What {x} costs in {y}: {sum(best)} of {len(points)} runs are on the front",
        xaxis_title=f"{x} ({ways[x]} is better)",
        yaxis_title=f"{y} ({ways[y]} is better)",
        template="plotly_white",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return exit_code(lambda: _command(_parser().parse_args(arguments)))


def _command(words: argparse.Namespace) -> int:
    of = words.of.split(",")
    if len(of) < 2 or len({*_names(of)}) < len(of):
        message = "a front needs two different rewards at least"
        raise UsageError([Problem("TW656", "--of", message, "such as `--of success,-tokens`")])
    points = [point_of(Path(run), words.last) for run in words.runs]
    best = front(points, of)
    if words.out:
        page = figure(points, of, best).to_html(include_plotlyjs=True, full_html=True)
        write_file(Path(words.out), page, "TW656", "--out")
        say(f"`{words.out}`")
    if words.json:
        rows = [
            {"run": point.name, "rewards": dict(point.rewards), "front": held}
            for point, held in zip(points, best, strict=True)
        ]
        sys.stdout.write(json.dumps({"version": 1, "of": of, "runs": rows}, indent=1) + "\n")
    for point, held in zip(points, best, strict=True):
        values = "  ".join(f"{name} {point.rewards[name]:.3f}" for name in _names(of))
        say(f"{'*' if held else ' '} {point.name}  {values}")
    return 0


def _names(of: Sequence[str]) -> list[str]:
    return [point.removeprefix("-") for point in of]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reference.rl.pareto",
        description="Draw the Pareto front of several rewards.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs")
    parser.add_argument("--of", default="success,-tokens", help="rewards; - for: less is better")
    parser.add_argument("--last", type=int, default=5, help="iterations that are averaged")
    parser.add_argument("--out", metavar="FILE", help="the figure, as one HTML file")
    parser.add_argument("--json", action="store_true", help="the points as JSON on stdout")
    return parser


if __name__ == "__main__":
    sys.exit(main())
