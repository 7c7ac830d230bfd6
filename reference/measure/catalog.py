"""A measured machine in files that the twin loads: catalog parts, and scenarios that name them.

In `catalog/` a folder gets `gpus/NAME.yaml`, `nodes/NAME.yaml` of one device (and NAME-xN of the N
that collectives ran over), `calibrations/NAME.yaml`, of a CPU `software/NAME.yaml`, where the
inference engine ran `engines/NAME.yaml` and `updaters/NAME.yaml`, and an entry NAME in
`sources.yaml`; a scenario beside `catalog` then names NAME. A GPU that the shipped catalog knows
extends its part there, and has only what was measured of this one. Each measured training step
becomes a scenario that says its seconds, and the engine a loop of reinforcement learning with a
table of the engine's passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import Any, Final

from ruamel.yaml import YAML

from reference.cluster.namespaces import BURST, PAYLOAD
from reference.inference.spec import EngineSpec
from reference.machine import Machine
from reference.measure.clock import Statistic
from reference.measure.fitting import Number, exactly
from reference.measure.limits import DeviceLimits, EngineTimes, Links, fit_messages
from reference.measure.points import BF16, ITEM, MESSAGE, STACK, MeasuredPoint
from reference.measure.profile import Profile
from twin.loading import load_part
from twin.units import Dimension, format_quantity

DIGITS: Final = 4
"""Significant digits that are written; no timing is known better."""
LEARNED: Final = (8, 160)
"""Rows of a loop's micro-batch, and tokens of each: how much memory the trainer leaves behind
decides whether waking finds pages or must ask for new ones."""
EAGER_STACK: Final = "fsdp2"
"""The catalog's nearest to the reference on a GPU."""
EAGER: Final = "-eager"
"""Behind the name of the profile under PyTorch's own kernels."""
LEAST: Final = 1e-9
"""Seconds of an item at least: one that is a difference of two times may be nothing."""
_TEMPLATES: Final = Path(__file__).parent / "templates"


def write_parts(
    folder: Path,
    machine: Machine,
    limits: DeviceLimits,
    profile: Profile,
    links: Links,
    engine: EngineTimes | None,
) -> list[Path]:
    """Writes the parts and the source that they cite; returns what was written. Without `engine`
    there is no engine and no updater."""
    catalog, name = folder / "catalog", machine.name
    texts = {
        f"gpus/{name}": gpu_text(machine, limits),
        f"nodes/{name}": node_text(machine, limits, links),
        f"calibrations/{name}": calibration_text(machine, limits, profile, links.statistic),
    }
    if engine is not None:
        own = EngineSpec()  # the engine runs with its defaults
        spec = {"running": own.running, "step_tokens": own.step_tokens}
        times = {"step": engine.step, "sequence": engine.sequence}
        texts[f"engines/{name}"] = _filled("engine", machine, **spec, **times)
        texts[f"updaters/{name}"] = _filled("updater", machine, per_tensor=engine.per_tensor)
    if links.ranks > 1:
        texts[f"nodes/{name}-x{links.ranks}"] = several_text(machine, links.ranks)
    files = {catalog / f"{place}.yaml": text for place, text in texts.items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*files, _cite(catalog / "sources.yaml", machine)]


def gpu_text(machine: Machine, limits: DeviceLimits) -> str:
    """The device as the twin's GPU."""
    cuda = machine.kind == "cuda"
    memory = machine.memory if cuda else machine.memory // machine.count
    note = "as the driver exposes it" if cuda else "a core's part of the host's"
    exposed = exactly(memory, note, "bytes")
    if limits.gpu is not None:
        known = load_part("gpus", limits.gpu).spec.name
        return _filled("gpu-known", machine, gpu=limits.gpu, known=known, memory=exposed)
    return _filled(
        "gpu",
        machine,
        memory=exposed,
        bandwidth=exactly(limits.bandwidth, limits.bandwidth_note, "bytes_per_s"),
        peak=exactly(limits.peak, limits.peak_note, "flop_per_s"),
        units=machine.units,
        noun="SMs" if cuda else "threads",
    )


def node_text(machine: Machine, limits: DeviceLimits, links: Links) -> str:
    """The host with its devices; links that no byte crosses are said to be assumed, and the line
    rate of a link is what was reached of it."""
    if limits.node is not None:
        pcie = load_part("nodes", limits.node).spec.host.pcie
        share = _share(links.pcie_rate, 1 / pcie.bandwidth)
        own = {"efficiency": share, "pcie_latency": links.pcie_latency}
        return _filled("node-known", machine, known=limits.node, **own) + _thread(links)
    names = ("rate", "latency", "nic_rate", "nic_latency", "pcie_rate", "pcie_latency", "dram")
    text = _filled(
        "node",
        machine,
        memory=format_quantity(machine.host_memory, "bytes"),
        whole=_whole(links.rate),
        nic_whole=_whole(links.nic_rate),
        pcie_whole=_whole(links.pcie_rate),
        **{name: getattr(links, name) for name in names},
    )
    return text + _thread(links)


def _thread(links: Links) -> str:
    """The last line of a node's host."""
    return f"  slowness: {leaf(links.slowness)}\n" if links.slowness else ""


def several_text(machine: Machine, ranks: int) -> str:
    """The same host with as many devices as collectives ran over."""
    return _filled("nodes", machine, ranks=ranks)


def write_eager(
    folder: Path, machine: Machine, limits: DeviceLimits, profile: Profile, statistic: Statistic
) -> Path:
    """Writes the profile under PyTorch's own kernels beside that of the reference's."""
    path = folder / "catalog" / "calibrations" / f"{machine.name}{EAGER}.yaml"
    text = calibration_text(machine, limits, profile, statistic)
    own = text.replace(f"\nname: {machine.name}\n", f"\nname: {machine.name}{EAGER}\n")
    path.write_text(own, encoding="utf-8")
    return path


def calibration_text(
    machine: Machine, limits: DeviceLimits, profile: Profile, statistic: Statistic
) -> str:
    """The profile, its residuals as comments above it."""
    known = load_part("gpus", limits.gpu).spec if limits.gpu else None
    alone = machine.kind == "cpu" and machine.units == 1
    law = {("matmuls", "bf16", "whole_tiles"): str(profile.whole_tiles).lower()}
    spans = {
        key: f"[{{value: {low}, kind: measured}}, {{value: {high}, kind: measured}}]"
        for key, (low, high) in profile.spans.items()
    }
    numbers: dict[str, Any] = {key[0]: {} for key in profile.numbers}
    for key, value in {**law, **profile.numbers, **spans}.items():
        section = numbers
        for name in key[:-1]:
            section = section.setdefault(name, {})
        section[key[-1]] = value
    return _filled(
        "calibration",
        machine,
        taken=f"{statistic} of",
        alone=", of the process's own time" if alone else "",
        residuals="\n".join(f"# {each}." for each in profile.residuals),
        parent=f"extends: {known.calibration}\n" if known else "",
        gpu=known.name if known else machine.name,
        numbers="\n".join(_lines(numbers)),
    )


def write_host(folder: Path, machine: Machine, points: Sequence[MeasuredPoint]) -> list[Path]:
    """Writes the reference's software: on a CPU with the items that it took."""
    own = [p for p in points if p.group == "host"]
    if not own:
        return []
    path = folder / "catalog" / "software" / f"{machine.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    if machine.kind == "cuda":
        path.write_text(_filled("software-gpu", machine, stack=EAGER_STACK), encoding="utf-8")
        return [path]
    seconds = {p.op.removeprefix(ITEM): max(LEAST, p.timing.median) for p in own}
    items = {name: exactly(each, "timed alone", "seconds") for name, each in seconds.items()}
    lines = "\n".join(_lines(items, "    "))
    fields = {"items": lines, "moved": _message([p for p in points if p.op == MESSAGE])}
    path.write_text(_filled("software", machine, stack=STACK, **fields), encoding="utf-8")
    return [path]


def _message(points: Sequence[MeasuredPoint]) -> str:
    """The law of a message's processor time on the links of `reference.cluster`; nothing where none
    was measured."""
    if not points:
        return ""
    note = "as reference.cluster holds links"
    frame, burst = exactly(PAYLOAD, note, "bytes"), exactly(BURST, note, "seconds")
    rates = len({point.shape["rate"] for point in points})
    note = f"{len(points)} points beside products, over {rates} rates"
    fitted = zip(("each", "piece"), fit_messages(points).numbers(note), strict=True)
    fields = {**dict(fitted), "frame": frame, "burst": burst}
    return "\n".join(["  message:", *_lines(fields, "    "), ""])


def write_steps(
    folder: Path, machine: Machine, points: Sequence[MeasuredPoint], statistic: Statistic
) -> list[Path]:
    """A scenario per bf16 step, beside `catalog`; returns them."""
    written: list[Path] = []
    for point in points:
        if point.group != "steps" or point.dtype != BF16:
            continue
        model, timing = point.op.partition(":")[2], point.timing
        sequences, length = point.shape["sequences"], point.shape["tokens"]
        path = folder / f"step-{model}-{sequences}x{length}.yaml"
        fields = {
            "seconds": f"{timing.seconds(statistic):.4g}",
            "statistic": statistic,
            "samples": timing.samples,
            "lower": f"{timing.lower:.4g}",
            "upper": f"{timing.upper:.4g}",
            "sequences": sequences,
            "length": length,
            "total": sequences * length * 1000,
            # On a CPU whoever predicts names the stack.
            "stack": f"software: {machine.name}\n" if machine.kind == "cuda" else "",
        }
        path.write_text(_filled("step", machine, model=model, **fields), encoding="utf-8")
        written.append(path)
    return written


def write_loop(folder: Path, machine: Machine, model: str, engine: EngineTimes) -> Path:
    """A loop of one process, in which the engine and the trainer take turns; others extend it."""
    fields = {
        "model": model,
        "rows": LEARNED[0],
        "length": LEARNED[1],
        "sleep": format_quantity(engine.sleep.value, "seconds"),
        "sleep_note": engine.sleep.note,
        "wake": format_quantity(engine.wake.value, "seconds"),
        "wake_note": engine.wake.note,
    }
    path = folder / f"loop-{model}.yaml"
    path.write_text(_filled("loop", machine, **fields), encoding="utf-8")
    return path


def write_passes(folder: Path, model: str, points: Sequence[MeasuredPoint]) -> Path:
    """The engine's passes as a table for `twin calibrate`, beside the loop that names the
    engine."""
    path, loop = folder / "passes.csv", folder / f"loop-{model}.yaml"
    lines = ["name,scenario,decoding,cached,seconds"]
    for point in points:
        if point.op == "engine_pass":
            batch, cached = point.shape["sequences"], point.shape["cached"]
            seconds = f"{point.timing.median:.4g}"
            lines.append(f"{batch} sequences,{loop},{batch},{cached},{seconds}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _filled(template: str, machine: Machine, **fields: object) -> str:
    """A template with facts of the machine and these fields in it."""
    text = Template((_TEMPLATES / f"{template}.yaml").read_text(encoding="utf-8"))
    here = {
        "node": machine.name,
        "device": machine.device,
        "date": machine.date,
        "software": json.dumps(machine.software),
    }
    return text.substitute(here, **{name: _shown(value) for name, value in fields.items()})


def _shown(value: object) -> str:
    return leaf(value) if isinstance(value, Number) else str(value)


def _whole(rate: Number) -> str:
    return f'{{value: 1.0, kind: {rate.kind}, note: "the rate above is what was reached"}}'


def _share(number: Number, factor: float) -> Number:
    """A number as a share of another: at most 1."""
    low, value, high = (min(1.0, v * factor) for v in (number.low, number.value, number.high))
    return replace(number, value=value, low=low, high=high, dimension=None)


def _lines(fields: Mapping[str, Any], pad: str = "") -> list[str]:
    """Fields as lines of YAML, sections indented."""
    lines: list[str] = []
    for name, value in fields.items():
        if isinstance(value, Mapping):
            lines += [f"{pad}{name}:", *_lines(value, f"{pad}  ")]
        else:
            lines.append(f"{pad}{name}: {_shown(value)}")
    return lines


def leaf(number: Number) -> str:
    """A number with its range, kind and note, in flow style; value and range are rounded alike, so
    that the value stays inside."""
    value, low, high = (_rounded(v) for v in (number.value, number.low, number.high))
    ends = (_written(v, number.dimension) for v in (min(low, value), max(high, value)))
    spread = f", range: [{', '.join(ends)}]" if number.low < number.high else ""
    note = json.dumps(number.note, ensure_ascii=False)
    shown = _written(value, number.dimension)
    return f"{{value: {shown}, kind: {number.kind}{spread}, note: {note}}}"


def _rounded(value: float) -> float:
    return value if float(value).is_integer() and value < 1e15 else float(f"{value:.{DIGITS}g}")


def _written(value: float, dimension: Dimension | None) -> str:
    return repr(float(value)) if dimension is None else format_quantity(value, dimension)


def _cite(path: Path, machine: Machine) -> Path:
    """Adds what was measured to the catalog's list of sources; what is there already stays."""
    # ruamel leaves the type of its streams open.
    yaml: Any = YAML()
    yaml.width = 1000
    known: Mapping[str, Any] = (yaml.load(path) if path.exists() else None) or {}
    entry = {
        "title": f"{machine.device}, measured by `python -m reference.measure`",
        "url": "points",
        "date": machine.date,
    }
    with path.open("w", encoding="utf-8") as stream:
        yaml.dump({**known, machine.name: entry}, stream)
    return path
