"""The rows of A100 that profiles are fitted on: one layer under five techniques (Korthikanti et al.
2022, Table 4), and the forty iterations of vTrain that are marked for fitting. Steps of GPT-175B
are in neither. `twin.evidence.validate.numbers` fits."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from twin.evidence.calibrate.rows import Row, korthikanti_layer, vtrain


def layer_rows(published: Path) -> tuple[Row, ...]:
    """Milliseconds of a layer forward and backward, per technique."""
    file = published / "a100-megatron.yaml"
    # ruamel leaves the type of its streams open.
    text = YAML(typ="safe").load(file)  # pyright: ignore[reportUnknownMemberType]
    rows = {row["id"]: row["metrics"] for row in text["measurements"]}
    metrics = rows["korthikanti22-t4-layer-22b"]
    return korthikanti_layer({k: v for k, v in metrics.items() if k != "columns"})


def iteration_rows(published: Path) -> tuple[Row, ...]:
    """vTrain's iterations."""
    files = (published / f"vtrain-fit-{kind}-node.csv" for kind in ("single", "multi"))
    return tuple(row for file in files for row in vtrain(file))
