"""From raw text to a trained and judged model, in one command that goes on where it was.

    OUTPUT/raw          made once, renamed into place
    OUTPUT/build        the stages and shards
    OUTPUT/run          the training of the preset `nano` on them
    OUTPUT/evaluation   what `reference.evaluate` finds of it, case by case

Every part resumes by itself, so the command is the same after a kill.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reference.config import load_run
from reference.data.pipeline import build
from reference.data.spec import BuildSpec
from reference.evaluate.run import evaluate
from reference.evaluate.task import EvaluateSpec
from reference.files import plain_yaml
from reference.text.toy import write_raw
from reference.train import train


def demo(output: Path, steps: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """What came out: documents, tokens, rewritings, what the evaluation found. The same for the
    same steps, whatever was killed on the way."""
    _raw(output)
    manifest = build(demo_spec(output), existing="resume", tell=tell)
    step = _train(output, steps, tell)
    found = _evaluate(output, tell)
    report = {
        "version": 2,
        "training_documents": manifest["sides"]["training"]["documents"],
        "rewritten": manifest["sides"]["training"]["rewrites"],
        "training_tokens": sum(row["tokens"] for row in manifest["training"]),
        "steps": step,
        "evaluation": found,
    }
    (output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def _train(output: Path, steps: int, tell: Callable[[str], None]) -> int:
    """Trains nano on the build, or goes on; the step that it ended at."""
    # The schedule of the preset is for its 1,200 steps; the same shape for fewer.
    shape = {"warmup_steps": steps // 10, "constant_steps": steps // 2}
    shape["decay_steps"] = steps - sum(shape.values())
    settings = _settings(output)["train"] | {
        "train.steps": steps,
        "train.checkpoint_every": max(1, steps // 4),
        **{f"schedule.{key}": value for key, value in shape.items()},
    }
    run = load_run("nano", [f"{key}={value}" for key, value in settings.items()])
    return train(run, tell=tell, existing="resume").step


def _evaluate(output: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """The metrics of each task by its name: value, low and high of a 95 % interval."""
    spec = EvaluateSpec.model_validate(_settings(output)["evaluate"])
    document = evaluate(spec, existing="resume")
    assert document is not None, "nobody asked it to stop"
    found = {
        name: {
            metric: {key: value[key] for key in ("value", "low", "high")}
            for metric, value in one.get("metrics", {}).items()
        }
        for name, one in document["tasks"].items()
    }
    for name, metrics in found.items():
        shown = ", ".join(f"{metric} {one['value']:.4f}" for metric, one in metrics.items())
        tell(f"evaluation: {name}: {shown}")
    return found


def _raw(output: Path) -> None:
    raw, aside = output / "raw", output / ".raw.partial"
    if not raw.exists():
        shutil.rmtree(aside, ignore_errors=True)
        write_raw(aside, seed=0)
        aside.rename(raw)


def demo_spec(output: Path) -> BuildSpec:
    """The build of the demonstration."""
    return BuildSpec.model_validate(_settings(output)["build"])


def _settings(output: Path) -> dict[str, Any]:
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    return plain_yaml(text.replace("OUTPUT", str(output)))
