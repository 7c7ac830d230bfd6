"""Going on with a run: which checkpoint, whether it is this configuration's, and its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torch.distributed import ProcessGroup

from reference.checkpoint import Checkpoint, newest, remove_unfinished
from reference.checkpoint.ranks import on_first
from reference.config import RunSpec
from reference.trainer.folder import CHECKPOINTS, write_config
from reference.trainer.state import restore
from reference.trainer.trainee import Trainee
from twin.errors import Problem, ScenarioError, render

MAY_CHANGE: Final = frozenset(
    f"train.{name}"
    for name in (
        "output",
        "checkpoint_every",
        "keep",
        "evaluate_every",
        "evaluate_sequences",
        "final_sequences",
        "spectra_every",
        "tensorboard",
        "timeline",
        "pace",
    )
) | {"data.cache"}
"""What a resumed run may do otherwise: it changes no number of the training."""
LAYOUT: Final = "parallel."
"""What it may cut otherwise: numbers change by the order of sums."""
ASKED: Final = "evaluate."
"""What its model may be asked otherwise."""


Found = tuple[Checkpoint | None, Sequence[Problem]]
"""The checkpoint to go on from, None at the beginning, and newer ones that were refused."""


def find(
    run: RunSpec, folder: Path, tell: Callable[[str], None], group: ProcessGroup | None = None
) -> Found:
    """The newest intact checkpoint of the folder, which from now on says what runs in it. Of a
    group the first rank looks, for all; every rank tells.

    Raises ScenarioError where checkpoints exist and none is intact, or where the run was another.
    """
    checkpoints = folder / CHECKPOINTS
    for name in on_first(group, lambda: remove_unfinished(checkpoints)):
        tell(f"removed `{name}`, which a process that was killed had not finished")
    checkpoint, refused = newest(checkpoints, group)
    if refused:
        tell(render(refused))
    if refused and checkpoint is None:
        message = f"no checkpoint in `{checkpoints}` is intact"
        raise ScenarioError([Problem("TW236", "", message, "`--fresh` begins anew")])
    config = run.model_dump(mode="json")
    if checkpoint is not None:
        _refuse_other_run(checkpoint, config)
    on_first(group, lambda: write_config(folder, config))
    return checkpoint, refused


def put_back(checkpoint: Checkpoint, trainee: Trainee, tell: Callable[[str], None]) -> None:
    """The checkpoint's state into a new trainee. Raises ScenarioError where it does not fit."""
    restore(checkpoint, trainee)
    trainee.step, trainee.tokens = checkpoint.step, checkpoint.facts["tokens"]
    trainee.loader.load_state_dict(checkpoint.facts["loader"])
    tell(f"resumed after step {checkpoint.step}, from `{checkpoint.path.name}`")


def _refuse_other_run(checkpoint: Checkpoint, config: Mapping[str, Any]) -> None:
    """Raises ScenarioError with every field in which the configurations differ."""
    before, now = dict(_leaves(checkpoint.config)), dict(_leaves(config))
    problems = [
        Problem(
            "TW234",
            path,
            f"the run in this folder has `{path}` {_shown(before, path)}, not {_shown(now, path)}",
            "resume with what it has, or begin anew with `--fresh` or in another `train.output`",
        )
        for path in sorted(before.keys() | now.keys())
        if path not in MAY_CHANGE
        and not path.startswith((LAYOUT, ASKED))
        and before.get(path, ...) != now.get(path, ...)
    ]
    if problems:
        raise ScenarioError(problems)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted path; an empty section or list is a value."""
    if isinstance(node, Mapping) and node:
        for key, child in node.items():
            yield from _leaves(child, f"{path}.{key}" if path else key)
    elif isinstance(node, list) and node:
        for index, child in enumerate(node):
            yield from _leaves(child, f"{path}.{index}")
    else:
        yield path, node


def _shown(leaves: Mapping[str, Any], path: str) -> str:
    return f"{leaves[path]!r}" if path in leaves else "unset"
