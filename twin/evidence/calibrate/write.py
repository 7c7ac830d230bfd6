"""A calibration as files: catalog parts that a scenario beside them can name, and the whole answer.

    FOLDER/catalog/calibrations/NAME.yaml   the profile, over the base that it stays near
    FOLDER/catalog/nodes/NODE-NAME.yaml     nodes whose links were fitted
    FOLDER/catalog/fabrics/FABRIC-NAME.yaml fabrics whose links were fitted
    FOLDER/catalog/software/STACK-NAME.yaml stacks whose hosts were fitted, with the profile
    FOLDER/catalog/sources.yaml             what they cite
    FOLDER/NAME.json                        rows, residuals, trials, interval

The folders are those of `python -m reference.measure`, so that one may hold both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from ruamel.yaml import YAML

from twin.answers.run_store import unwritable
from twin.evidence.calibrate.factors import SECONDS, value
from twin.evidence.calibrate.result import VERSION, Calibration, Errors, FittedNumber
from twin.loading import catalog_parts, load_part
from twin.units import format_quantity

_PARTS: Final = {"node": "nodes", "fabric": "fabrics", "software": "software"}
"""Folders of the catalog, by what a factor calls their parts."""
_COUNTS: Final = frozenset({"gpus", "sockets"})
"""Numbers that are whole."""
DIGITS: Final = 4
"""Significant digits that are written; no fit knows more."""


def write(calibration: Calibration, folder: Path) -> list[Path]:
    """Writes the files, over what is there of the same name; returns them. Raises `UsageError`
    where the folder cannot be written."""
    catalog = folder / "catalog"
    files = {
        catalog / "calibrations" / f"{calibration.name}.yaml": profile_text(calibration),
        folder / f"{calibration.name}.json": json.dumps(calibration.to_json(), indent=2) + "\n",
    }
    for root, kind in _PARTS.items():
        for part in calibration.parts.get(root, {}):
            file = catalog / kind / f"{part}-{calibration.name}.yaml"
            files[file] = part_text(calibration, part, with_profile=root == "software")
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        cited = _cite(catalog / "sources.yaml", calibration)
    except OSError as error:
        raise unwritable(folder, error, "--output") from None
    return [*files, cited]


def profile_text(calibration: Calibration) -> str:
    """The profile as a part of the catalog. Over a shipped base it says only what differs,
    else everything."""
    lines = [*_head(calibration)]
    extends = _says_enough(calibration)
    if extends:
        lines.append(f"extends: {calibration.stamp.base}")
    profile = calibration.profile
    lines += [
        f"name: {calibration.name}",
        f"gpu: {json.dumps(profile.gpu)}",
        f"software: {json.dumps(profile.software)}",
        f'date: "{profile.date}"',
    ]
    numbers = {found.path: _leaf(found, calibration) for found in _own(calibration)}
    if not extends:
        numbers = _whole(calibration) | numbers
    if calibration.spans is not None and any(map(_is_law, numbers)):
        sides, inner = calibration.spans
        numbers["matmuls.bf16.sides"] = _span(sides)
        numbers["matmuls.bf16.inner"] = _span(inner)
    return "\n".join([*lines, *_nested(numbers)]) + "\n"


def part_text(calibration: Calibration, part: str, *, with_profile: bool) -> str:
    """A node or a stack with its links or its host as fitted; a stack brings the profile along."""
    own = [found for found in calibration.found if found.path.startswith(f"{part}.")]
    numbers = {f.path.removeprefix(f"{part}."): _leaf(f, calibration, part) for f in own}
    gpu = json.dumps(calibration.stamp.device)
    lines = [
        *_head(calibration),
        f"extends: {part}",
        f"name: {part}-{calibration.name}",
        *([f"calibrations: {{{gpu}: {calibration.name}}}"] if with_profile else []),
        *_nested(numbers),
    ]
    return "\n".join(lines) + "\n"


def _is_law(path: str) -> bool:
    return path.startswith("matmuls.")


def _says_enough(calibration: Calibration) -> bool:
    """Whether the base is shipped, so that a part can extend it, and has every section of which
    numbers were fitted."""
    name = calibration.stamp.base
    if name not in catalog_parts("calibrations"):
        return False
    base = load_part("calibrations", name).spec
    return all(value(base, found.path) is not None for found in _own(calibration))


def _own(calibration: Calibration) -> list[FittedNumber]:
    """The numbers of the profile, without those of links and hosts."""
    return [f for f in calibration.found if value(calibration.profile, f.path) is not None]


def _head(calibration: Calibration) -> list[str]:
    """What was fitted on what, as comments, and who says the numbers."""
    stamp = calibration.stamp
    rows = sum(row.use == "fit" for row in calibration.rows)
    before = _words(calibration.errors("before", "fit"))
    after = _words(calibration.errors("left_out", "fit"))
    lines = [
        f"# Calibrated on {stamp.date} from {stamp.kind} by twin {stamp.twin} (format {VERSION}).",
        f"# {stamp.file}, SHA-256 {stamp.digest}.",
        f"# {rows} rows of {stamp.device}, base {stamp.base}, {calibration.fitted} numbers fitted.",
        f"# Error of rows left out: {before} before (the base), {after} after.",
        *(f"# {note}." for note in calibration.notes),
    ]
    return [*lines, f"source: {calibration.name}", "kind: fitted"]


def _words(errors: Errors | None) -> str:
    return f"{errors.mean:.1%}" if errors else "unknown"


def _leaf(found: FittedNumber, calibration: Calibration, part: str | None = None) -> str:
    """A fitted number with its range and what it was, in the part that it is of, or in the base."""
    ends = sorted((found.low, found.high))
    low, high = (_written(found.path, value) for value in ends)
    before, base = _written(found.path, found.before), part or calibration.stamp.base
    note = (
        f"{found.factor}: {before} in {base}; rows took {max(0.0, found.learned):.0%} of its spread"
    )
    value = _written(found.path, found.after)
    return f"{{value: {value}, range: [{low}, {high}], note: {json.dumps(note)}}}"


def _written(path: str, value: float) -> str:
    short, name = float(f"{value:.{DIGITS}g}"), path.rpartition(".")[2]
    if name in _COUNTS:
        return str(int(value))
    return format_quantity(short, "seconds") if name in SECONDS else repr(short)


def _span(span: tuple[int, int]) -> str:
    low, high = span
    return f"[{{value: {low}, kind: measured}}, {{value: {high}, kind: measured}}]"


_WORDS: Final = frozenset({"name", "gpu", "software", "date"})


def _whole(calibration: Calibration) -> dict[str, str]:
    """Every value of the profile; what was not fitted is as in the base."""
    note = json.dumps(f"as in {calibration.stamp.base}")
    values = calibration.profile.model_dump(mode="json")
    return {
        path: value
        if value in ("true", "false") or value.startswith("[")
        else f"{{value: {value}, kind: assumed, note: {note}}}"
        for path, value in _leaves(values, "")
    }


def _leaves(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, str]]:
    """Numbers, quantities, flags and spans as they are written."""
    for key, entry in values.items():
        path = f"{above}{key}"
        if path in _WORDS or entry is None:
            continue
        if isinstance(entry, dict):
            yield from _leaves(cast("dict[str, Any]", entry), f"{path}.")
        elif isinstance(entry, list):
            low, high = cast("list[int]", entry)
            yield path, _span((low, high))
        else:
            yield path, json.dumps(entry).strip('"')


def _nested(numbers: Mapping[str, str]) -> list[str]:
    """Dotted numbers as sections."""
    lines: list[str] = []
    opened: tuple[str, ...] = ()
    for path in sorted(numbers, key=lambda p: (p.count(".") > 0, p.split(".")[:-1])):
        *sections, name = path.split(".")
        for depth, section in enumerate(sections):
            if opened[: depth + 1] != tuple(sections[: depth + 1]):
                lines.append(f"{'  ' * depth}{section}:")
        opened = tuple(sections)
        lines.append(f"{'  ' * len(sections)}{name}: {numbers[path]}")
    return lines


def _cite(path: Path, calibration: Calibration) -> Path:
    """Adds the calibration to the catalog's sources; what is there already stays."""
    # ruamel leaves the type of its streams open.
    yaml = YAML()
    yaml.width = 1000
    listed: Any = yaml.load(path) if path.exists() else None  # pyright: ignore[reportUnknownMemberType]
    stamp = calibration.stamp
    entry = {
        "title": f"`twin calibrate` on {stamp.kind}, {stamp.device}, SHA-256 {stamp.digest[:16]}",
        "url": stamp.file,
        "date": stamp.date,
    }
    known: Mapping[str, Any] = listed or {}
    with path.open("w", encoding="utf-8") as stream:
        yaml.dump({**known, calibration.name: entry}, stream)  # pyright: ignore[reportUnknownMemberType]
    return path
