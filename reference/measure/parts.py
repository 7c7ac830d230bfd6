"""A measured machine as catalog parts: text in the form that the twin loads.

In `catalog/` a folder gets `gpus/NAME.yaml`, `nodes/NAME.yaml` of one device (and NAME-xN of the N
that collectives ran over), `calibrations/NAME.yaml`, `engines/NAME.yaml` and `updaters/NAME.yaml`
where the inference engine ran, and an entry NAME in `sources.yaml`; a scenario beside `catalog`
then names NAME. A GPU that the shipped catalog knows extends its part
there, and says only what was measured of this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from reference.inference.spec import EngineSpec
from reference.machine import Machine
from reference.measure.ceilings import Best
from reference.measure.links import Links
from reference.measure.point import Statistic
from reference.measure.profile import Key, Number, Profile
from reference.measure.serving import Serving
from twin.loading import load_part
from twin.units import Dimension, format_quantity

DIGITS = 4
"""Significant digits that are written; no timing is known better."""


def write_parts(
    folder: Path,
    machine: Machine,
    best: Best,
    profile: Profile,
    links: Links,
    serving: Serving | None,
) -> list[Path]:
    """Writes the parts and the source that they cite; returns what was written. Without `serving`
    there is no engine and no updater."""
    catalog = folder / "catalog"
    texts = {
        catalog / "gpus": gpu_text(machine, best),
        catalog / "nodes": node_text(machine, best, links),
        catalog / "calibrations": calibration_text(machine, best, profile, links.statistic),
    }
    if serving is not None:
        texts[catalog / "engines"] = engine_text(machine, serving)
        texts[catalog / "updaters"] = updater_text(machine, serving)
    files = {place / f"{machine.name}.yaml": text for place, text in texts.items()}
    if links.ranks > 1:
        files[catalog / "nodes" / f"{machine.name}-x{links.ranks}.yaml"] = several_text(
            machine, links.ranks
        )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*files, _cite(catalog / "sources.yaml", machine)]


def gpu_text(machine: Machine, best: Best) -> str:
    """The device as the twin's GPU."""
    memory = machine.memory if machine.kind == "cuda" else machine.memory // machine.count
    note = "as the driver exposes it" if machine.kind == "cuda" else "a core's part of the host's"
    exposed = Number(memory, memory, memory, note, "measured", "bytes")
    if best.gpu is not None:
        known = load_part("gpus", best.gpu).spec
        lines = [
            *_head(machine, f"{machine.device}: the catalog's {best.gpu}"),
            f"extends: {best.gpu}",
            f"name: {known.name}",
            f"memory: {leaf(exposed)}",
        ]
    else:
        peak = Number(best.peak, best.peak, best.peak, best.peak_note, "measured", "flop_per_s")
        moved = Number(
            best.bandwidth,
            best.bandwidth,
            best.bandwidth,
            best.bandwidth_note,
            "measured",
            "bytes_per_s",
        )
        units = "SMs" if machine.kind == "cuda" else "threads"
        lines = [
            *_head(machine, machine.device),
            f"name: {machine.name}",
            f"memory: {leaf(exposed)}",
            f"memory_bandwidth: {leaf(moved)}",
            f"bf16_dense: {leaf(peak)}",
            f"sms: {machine.units}  # {units}",
        ]
    return "\n".join([*lines, f"calibration: {machine.name}"]) + "\n"


def node_text(machine: Machine, best: Best, links: Links) -> str:
    """The host with its devices; links that no byte crosses are said to be assumed."""
    title = f"One host: {machine.device}"
    head = [*_head(machine, title), f"name: {machine.name}", f"gpu: {machine.name}"]
    if best.node is not None:
        known = load_part("nodes", best.node).spec
        share = links.pcie_rate.value / known.host.pcie.bandwidth
        efficiency = _times(links.pcie_rate, share / links.pcie_rate.value)
        lines = [
            *head[:2],
            f"extends: {best.node}",
            *head[2:],
            "gpus: 1",
            "host:",
            "  pcie:",
            f"    efficiency: {leaf(efficiency)}",
            f"    latency: {leaf(links.pcie_latency)}",
        ]
        return "\n".join(lines) + "\n"
    lines = [
        *head,
        "gpus: 1",
        *_link("nvlink", links.rate, links.latency),
        *_link("nic", links.nic_rate, links.nic_latency),
        "host:",
        f"  memory: {_quantity(machine.host_memory, 'bytes')}",
        f"  memory_bandwidth_per_socket: {leaf(links.dram)}",
        "  sockets: 1",
        *(f"  {line}" for line in _link("pcie", links.pcie_rate, links.pcie_latency)),
    ]
    return "\n".join(lines) + "\n"


def engine_text(machine: Machine, serving: Serving) -> str:
    """`reference.inference` with its defaults, on one device, which is its host, too."""
    own = EngineSpec()
    lines = [
        *_head(machine, f"The reference's inference engine on {machine.device}"),
        f"name: {machine.name}",
        "gpus: 1",
        "tensor: 1",
        "precision: bf16",
        "cache: bf16",
        "two_batches: false",
        f"batch: {own.running}",
        f"chunk: {own.step_tokens}tok",
        "prefix_cache: false",
        f"step_overhead: {leaf(serving.step)}",
        f"sequence_overhead: {leaf(serving.sequence)}",
    ]
    return "\n".join(lines) + "\n"


def updater_text(machine: Machine, serving: Serving) -> str:
    """New weights through host memory to an engine of the same process: nothing is sent."""
    lines = [
        *_head(machine, f"Weight updates within a process on {machine.device}"),
        f"name: {machine.name}",
        f"gpu: {machine.name}",
        f"software: {json.dumps(machine.software)}",
        f'date: "{machine.date}"',
        "nics: 1",
        "efficiency: 1.0",
        "hop: 0s",
        f"per_tensor: {leaf(serving.per_tensor)}",
        "gather: 0s",
        "regroup: 0s",
    ]
    return "\n".join(lines) + "\n"


def several_text(machine: Machine, ranks: int) -> str:
    """The same host with as many devices as collectives ran over."""
    lines = [
        *_head(machine, f"{ranks} ranks on one host: {machine.device}"),
        f"extends: {machine.name}",
        f"name: {machine.name}-x{ranks}",
        f"gpus: {ranks}",
    ]
    return "\n".join(lines) + "\n"


def calibration_text(machine: Machine, best: Best, profile: Profile, statistic: Statistic) -> str:
    """The profile, its residuals as comments above it."""
    known = load_part("gpus", best.gpu).spec if best.gpu else None
    parent = [f"extends: {known.calibration}"] if known else []
    lines = [
        *_comments(machine, statistic, profile),
        *_about(machine),
        *parent,
        f"name: {machine.name}",
        f"gpu: {known.name if known else machine.name}",
        f"software: {json.dumps(machine.software)}",
        f'date: "{machine.date}"',
        *_section(profile, ()),
    ]
    return "\n".join(lines) + "\n"


def _comments(machine: Machine, statistic: Statistic, profile: Profile) -> list[str]:
    taken = "least of" if statistic == "least" else "median of"
    alone = ", of the process's own time" if machine.kind == "cpu" and machine.units == 1 else ""
    return [
        f"# {machine.device}, {machine.date}: seconds are the {taken} repeated samples{alone}.",
        *(f"# {one}." for one in profile.residuals),
    ]


def _section(profile: Profile, above: Key) -> list[str]:
    """The numbers below some keys, sections indented."""
    pad, depth = "  " * len(above), len(above)
    lines: list[str] = []
    seen: set[str] = set()
    for key in (*profile.numbers, *profile.spans):
        if key[:depth] != above or key[depth] in seen:
            continue
        name = key[depth]
        seen.add(name)
        if len(key) > depth + 1:
            below = _section(profile, (*above, name))
            extra = [f"{pad}  whole_tiles: {_flag(profile)}"] if name == "bf16" else []
            lines += [f"{pad}{name}:", *extra, *below]
        elif key in profile.spans:
            low, high = profile.spans[key]
            lines.append(f"{pad}{name}: [{_measured(low)}, {_measured(high)}]")
        else:
            lines.append(f"{pad}{name}: {leaf(profile.numbers[key])}")
    return lines


def _flag(profile: Profile) -> str:
    return "true" if profile.whole_tiles else "false"


def _measured(value: int) -> str:
    return f"{{value: {value}, kind: measured}}"


def _link(name: str, rate: Number, latency: Number) -> list[str]:
    """A link whose line rate is what was reached of it."""
    whole = f'{{value: 1.0, kind: {rate.kind}, note: "the rate above is what was reached"}}'
    return [
        f"{name}:",
        f"  bandwidth: {leaf(rate)}",
        f"  efficiency: {whole}",
        f"  latency: {leaf(latency)}",
    ]


def _head(machine: Machine, title: str) -> list[str]:
    return [f"# {title}. Measured by `python -m reference.measure`.", *_about(machine)]


def _about(machine: Machine) -> list[str]:
    return [f"source: {machine.name}", "kind: measured"]


def leaf(number: Number) -> str:
    """A number with its range, kind and note, in flow style."""
    value, low, high = (_written(v, number.dimension) for v in _ordered(number))
    spread = f", range: [{low}, {high}]" if number.low < number.high else ""
    note = json.dumps(number.note, ensure_ascii=False)
    return f"{{value: {value}, kind: {number.kind}{spread}, note: {note}}}"


def _ordered(number: Number) -> tuple[float, float, float]:
    """Value and range, rounded alike, so that the value stays inside."""
    value, low, high = (_rounded(v) for v in (number.value, number.low, number.high))
    return value, min(low, value), max(high, value)


def _rounded(value: float) -> float:
    return value if float(value).is_integer() and value < 1e15 else float(f"{value:.{DIGITS}g}")


def _written(value: float, dimension: Dimension | None) -> str:
    return repr(float(value)) if dimension is None else _quantity(value, dimension)


def _quantity(value: float, dimension: Dimension) -> str:
    return format_quantity(value, dimension)


def _times(number: Number, factor: float) -> Number:
    """A number in other units, as a share: at most 1."""
    low, value, high = (min(1.0, v * factor) for v in (number.low, number.value, number.high))
    return Number(value, low, high, number.note, number.kind)


def _cite(path: Path, machine: Machine) -> Path:
    """Adds what was measured to the catalog's list of sources; what is there already stays."""
    # ruamel leaves the type of its streams open.
    yaml = YAML()
    yaml.width = 1000
    listed: Any = yaml.load(path) if path.exists() else None  # pyright: ignore[reportUnknownMemberType]
    entry = {
        "title": f"{machine.device}, measured by `python -m reference.measure`",
        "url": "points",
        "date": machine.date,
    }
    known: Mapping[str, Any] = listed or {}
    with path.open("w", encoding="utf-8") as stream:
        yaml.dump({**known, machine.name: entry}, stream)  # pyright: ignore[reportUnknownMemberType]
    return path
