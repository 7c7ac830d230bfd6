"""`python -m reference.rl.pareto RUN ... [--of success,length] [--out FILE.html] [--json]`: what
several rewards trade against each other, over runs with different weights.

A run is the folder of `python -m reference.rl`, judged by the means of its last iterations: the
rewards that it weighs, `success`, `score`, and `tokens`, the length of its responses. A name with a
minus is better the lower it is. On the front are runs that no other beats in one thing without
losing in another. Exit codes: 0 drawn, 1 a bug, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from reference.ending import exit_code, say
from reference.metrics import NAME, read_lines
from twin.errors import Problem, UsageError
from twin.loading.suggest import hint

_INK: Final = {True: "#1f6feb", False: "#8b949e"}
"""Of runs on the front, and of others."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run, and what it came to under several rewards."""

    name: str
    rewards: Mapping[str, float]


def point_of(folder: Path, last: int) -> Point:
    """Means of a run's last iterations. Raises UsageError TW656 where it has none."""
    try:
        lines = read_lines(folder / NAME) if (folder / NAME).is_file() else []
    except (OSError, ValueError):
        lines = []
    told = [one for one in lines if one.get("kind") == "iteration"][-last:]
    rows = [found for one in told if (found := _rewards(one))]
    if not rows:
        message = f"`{folder}` has no iterations of `python -m reference.rl`"
        raise UsageError([Problem("TW656", "RUN", message, "name the folder of a run")])
    names = [name for name in rows[0] if all(name in one for one in rows)]
    means = {name: sum(one[name] for one in rows) / len(rows) for name in names}
    return Point(folder.name, means)


def _rewards(line: Mapping[str, Any]) -> dict[str, float]:
    own = {"success": line.get("success"), "score": line.get("score"), "tokens": line.get("length")}
    found = {**own, **line.get("parts", {})}
    return {name: float(value) for name, value in found.items() if value is not None}


def front(points: Sequence[Point], of: Sequence[str]) -> list[bool]:
    """Which points none dominates: no other is as good in all of `of` and better in one."""
    rows = [tuple(_worth(one, name) for name in of) for one in points]
    return [not any(_dominates(other, row) for other in rows) for row in rows]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _worth(point: Point, name: str) -> float:
    """The more the better."""
    plain = name.removeprefix("-")
    if plain not in point.rewards:
        fix = hint(plain, tuple(point.rewards), "its rewards are those that it weighs")
        message = f"`{point.name}` has no reward `{plain}`"
        raise UsageError([Problem("TW656", "--of", message, fix)])
    return -point.rewards[plain] if name.startswith("-") else point.rewards[plain]


def figure(points: Sequence[Point], of: Sequence[str], best: Sequence[bool]) -> Any:
    """The first two rewards as a plotly figure: all runs by name, those on the front joined.
    Raises UsageError TW657 where plotly is not installed."""
    try:
        import plotly.graph_objects as go  # noqa: PLC0415  the reference does without it elsewhere
    except ImportError:
        fix = "`pip install 'twin[ui]'`, or `--json` without `--out`"
        raise UsageError([Problem("TW657", "--out", "plotly is not installed", fix)]) from None
    x, y = (name.removeprefix("-") for name in of[:2])
    made = go.Figure()
    for here, label in ((True, "on the front"), (False, "beaten by another")):
        some = [one for one, held in zip(points, best, strict=True) if held == here]
        some.sort(key=lambda one: one.rewards[x])
        made.add_scatter(
            x=[one.rewards[x] for one in some],
            y=[one.rewards[y] for one in some],
            text=[one.name for one in some],
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
    return exit_code(lambda: _asked(_parser().parse_args(arguments)))


def _asked(words: argparse.Namespace) -> int:
    of = words.of.split(",")
    if len(of) < 2 or len({one.removeprefix("-") for one in of}) < len(of):
        message = "a front needs two different rewards at least"
        raise UsageError([Problem("TW656", "--of", message, "such as `--of success,-tokens`")])
    points = [point_of(Path(run), words.last) for run in words.runs]
    best = front(points, of)
    if words.out:
        _write(Path(words.out), figure(points, of, best))
    if words.json:
        rows = [
            {"run": one.name, "rewards": dict(one.rewards), "front": held}
            for one, held in zip(points, best, strict=True)
        ]
        sys.stdout.write(json.dumps({"version": 1, "of": of, "runs": rows}, indent=1) + "\n")
    for one, held in zip(points, best, strict=True):
        told = "  ".join(f"{name} {one.rewards[name]:.3f}" for name in _names(of))
        say(f"{'*' if held else ' '} {one.name}  {told}")
    return 0


def _names(of: Sequence[str]) -> list[str]:
    return [one.removeprefix("-") for one in of]


def _write(file: Path, made: Any) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made.to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")
    except OSError as error:
        message = f"`{file}` cannot be written: {error.strerror}"
        raise UsageError([Problem("TW656", "--out", message)]) from None
    say(f"`{file}`")


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
