"""What a run says of itself while it trains: one JSON line per step, and one per event.

`metrics.jsonl` is a loss curve that anybody can read: on resume it is cut back to the checkpoint,
so that it holds each step once however often the run was killed. A number that JSON cannot hold
(infinity, or no number at all) is null. TensorBoard gets the same numbers where it is asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, Self, TextIO

from reference.files import replace_synced
from twin.errors import Problem, UsageError

NAME: Final = "metrics.jsonl"
EventKind = Literal[
    "resume", "stage", "spectra", "tasks", "checkpoint", "refused", "interrupted", "diverged"
]


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One optimizer step. What differs between two runs of one configuration: `seconds`, what
    follows from it, and `peak_bytes`."""

    step: int
    """From 1."""
    stage: str
    tokens: int
    """Trained on so far, this step's included."""
    loss: float
    """Nats per token, over all micro-batches, before the update; without the balance loss."""
    lr: float
    gradient_norm: float
    """L2 norm over all parameters, before Muon's orthogonalisation makes it meaningless."""
    max_logit: float
    """S_max: the largest scaled attention logit of any head; Kimi K2, section 2.1. On a GPU,
    while it is below QK-clip's threshold, an upper bound, by at most ln(keys)."""
    clipped_heads: int
    load_imbalance: float
    """Tokens of the fullest expert over the mean, in the worst layer; 0 without experts."""
    seconds: float
    tokens_per_s: float
    mfu: float | None
    """Model FLOP over the device's peak; null where no peak is known."""
    kept_bytes: int | None
    """Activations held between forward and backward, at most over micro-batches; null where the
    memory policy is empty, since nothing counts them then."""
    peak_bytes: int
    """Of device memory on CUDA, else of the process."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The loss on held-out text."""

    step: int
    stage: str
    bits_per_byte: float
    loss: float
    """Nats per token."""
    tokens: int
    """Predicted."""


class Metrics:
    """The history of one run, in memory and in its folder's log. Use as a context manager."""

    def __init__(self, folder: Path | None, *, last_step: int | None, tensorboard: bool) -> None:
        """Begin a log, or go on after `last_step`, forgetting what came later; without a folder,
        only in memory."""
        self.steps: list[StepMetrics] = []
        self.evaluations: list[Evaluation] = []
        self._file: TextIO | None = None
        self._board: Any = None
        if folder is None:
            return
        self._board = _board(folder, last_step) if tensorboard else None
        path = folder / NAME
        earlier = [] if last_step is None else read_lines(path)
        lines = [line for line in earlier if _stays(line, last_step or 0)]
        self._recall(lines)
        replace_synced(path, "".join(map(line_of, lines)))
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            self._file.close()
        if self._board:
            self._board.close()

    def step(self, step: StepMetrics) -> None:
        """Append one step."""
        self.steps.append(step)
        self._append("step", asdict(step))

    def evaluation(self, evaluation: Evaluation) -> None:
        """Append one evaluation."""
        self.evaluations.append(evaluation)
        self._append("evaluation", asdict(evaluation))

    def event(self, kind: EventKind, step: int, **facts: Any) -> None:
        """Append something that happened after `step` steps."""
        self._append(kind, {"step": step, **facts})

    def sync(self) -> None:
        """Put all lines on disk: before a checkpoint that counts on them."""
        if self._file:
            os.fsync(self._file.fileno())

    def _recall(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """The history of the processes before this one."""
        for line in lines:
            facts = {key: value for key, value in line.items() if key != "kind"}
            if line["kind"] == "step":
                self.steps.append(StepMetrics(**facts))
            elif line["kind"] == "evaluation":
                self.evaluations.append(Evaluation(**facts))

    def _append(self, kind: str, facts: Mapping[str, Any]) -> None:
        if self._file:
            self._file.write(line_of({"kind": kind, **facts}))
            self._file.flush()
        if self._board:
            for name, value in facts.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(f"{kind}/{name}", value, facts["step"])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log, steps and events, in order. A last line that a killed process left
    unfinished is dropped. Empty where there is no log."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _stays(line: Mapping[str, Any], last_step: int) -> bool:
    """Whether a line tells of nothing that will happen again. A stage begins after a step."""
    return line["step"] < last_step or (line["step"] == last_step and line["kind"] != "stage")


def line_of(facts: Mapping[str, Any]) -> str:
    """A line of a log; numbers that JSON cannot hold are null."""
    known = {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in facts.items()
    }
    return json.dumps(known, allow_nan=False) + "\n"


def _board(folder: Path, last_step: int | None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  optional, and slow
    except ImportError:
        message = "`train.tensorboard` is on, and TensorBoard is not installed"
        fix = "install the extra `tensorboard`, or write `tensorboard: false`"
        raise UsageError([Problem("TW239", "train.tensorboard", message, fix)]) from None
    purge = None if last_step is None else last_step + 1
    return SummaryWriter(folder / "tensorboard", purge_step=purge)
