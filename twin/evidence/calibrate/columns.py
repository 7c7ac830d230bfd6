"""The columns of a table of step times, and the scenario that each of its rows describes.

`seconds` is what was measured: of a step, or, in a row that says how many sequences are `decoding`
with so many tokens `cached` each, of a pass of its scenario's inference engine. `gpu` and `gpus`
name the hardware, `data` is checked, `use: check` keeps a row out of every fit; all other columns
are fields of a scenario, by their own name where it says enough (`pipeline`, `global_batch`,
`recompute`), or dotted (`model.layers`). A row is played as a scenario of its own, with what the
table leaves out taken from the row's own `scenario`, a file or a shipped one, from `--defaults`, or
from `PLAIN`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from twin import units
from twin.answers.csv_text import is_number
from twin.engine import plan
from twin.errors import Origin, Problem, ScenarioError, TwinError, UsageError
from twin.evidence.calibrate.table import Cell, Row, Table
from twin.loading import catalog_parts, load_any, load_part
from twin.loading.files import read_data
from twin.loading.tree import hint
from twin.scenario import ParallelSpec, Scenario, TrainSpec
from twin.spec.memory import MemorySpec

PLAIN: Final = Path(__file__).with_name("plain_row.yaml")
"""Defaults for missing columns, but for those of `NEEDED`."""
NEEDED: Final = ("seconds", "model", "global_batch", "sequence")

SECTIONS: Final = MappingProxyType(
    {"parallel": ParallelSpec, "memory": MemorySpec, "train": TrainSpec}
)
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "model": "model",
        "node": "cluster.node",
        "nodes": "cluster.nodes",
        "fabric": "cluster.fabric",
        **{
            name: f"{section}.{name}"
            for section, spec in SECTIONS.items()
            for name in spec.model_fields
        },
    }
)
"""Columns that are fields of a scenario, and which."""
OWN: Final = (
    "seconds", "scenario", "gpu", "gpus", "data", "use", "name", "decoding", "cached",
)  # fmt: skip
"""Columns that are not."""
_BARE: Final = MappingProxyType({"global_batch": "seq", "sequence": "tok"})
"""Units of counts that a table writes bare: sequences, and tokens."""

Use = Literal["fit", "check"]


@dataclass(frozen=True, slots=True)
class StepRow:
    """A measured step: what the row is called, its scenario, seconds, and whether a fit may see
    it; or a pass of the scenario's engine, of so many sequences with so many cached tokens each."""

    name: str
    scenario: Scenario
    measured: float
    use: Use
    origin: Origin
    decode: tuple[int, int] | None = None


def steps(table: Table, base: str | None, sets: Sequence[str]) -> tuple[StepRow, ...]:
    """Every row as a scenario. Raises `UsageError` or `ScenarioError` with all that is wrong."""
    _refuse_columns(table, base)
    file = base or str(PLAIN)
    found: list[StepRow] = []
    problems: dict[Problem, None] = {}
    error: type[TwinError] = UsageError
    for number, row in enumerate(table.rows, 1):
        try:
            own = row["scenario"].text if "scenario" in row else file
            found.append(_step(row, number, own, sets, own == file and base is None))
        except TwinError as wrong:
            problems |= dict.fromkeys(wrong.problems)
            error = ScenarioError if isinstance(wrong, ScenarioError) else error
    if problems:
        raise error(problems)
    _refuse_gpus(found)
    return tuple(found)


def _refuse_columns(table: Table, base: str | None) -> None:
    """Raises what is wrong with the names of columns."""
    known = (*OWN, *FIELDS)
    problems = [
        Problem("TW351", "", f"no column is called `{name}`", _nearest(name, known), place)
        for name, place in table.columns.items()
        if name not in known and name.partition(".")[0] not in Scenario.model_fields
    ]
    said = base is not None or "scenario" in table.columns
    needed = NEEDED[:1] if said else NEEDED
    missing = [name for name in needed if not any(_says(column, name) for column in table.columns)]
    if not said and not {"gpu", "node"} & set(table.columns):
        missing.append("gpu")
    if missing:
        words = ", ".join(f"`{name}`" for name in missing)
        fix = "add them, or name a scenario that says the rest with --defaults"
        if "seconds" in missing:
            fix = "each row needs the seconds of one step"
        first = next(iter(table.columns.values()), None)
        problems.append(Problem("TW352", "", f"the table has no column {words}", fix, first))
    if problems:
        raise UsageError(problems)


def _nearest(name: str, known: Sequence[str]) -> str:
    """The column that a name most likely means, by what else people call it."""
    also = read_data(Path(__file__).with_name("column_names.yaml"))
    other = also.get(name.lower().replace("-", "_").replace(" ", "_"))
    if other is not None:
        return f"write `{other}`"
    return hint(name, known) + "; a dot makes it a field of the scenario, `model.layers`"


def _says(column: str, name: str) -> bool:
    """Whether a column says what another would: `train.sequence` what `sequence` does."""
    return column in (name, FIELDS.get(name)) or column.startswith(f"{FIELDS.get(name)}.")


def _step(row: Row, number: int, file: str, sets: Sequence[str], plain: bool) -> StepRow:
    seconds = _seconds(row)
    columns = [*_hardware(row, plain), *_fields(row, plain)]
    overrides = [f"{path}={cell.text}" for path, cell in columns]
    named = row["scenario"].origin if "scenario" in row else None
    try:
        scenario = load_any(file, (*overrides, *sets))
    except TwinError as error:
        raise type(error)(_placed(error.problems, columns, named)) from None
    if not isinstance(scenario, Scenario):
        message = f"`{scenario.name}` is a weight update, and its rows would be steps"
        raise UsageError([Problem("TW158", "", message, "name a training run", named)])
    _refuse_data(row, scenario)
    use = row["use"].text if "use" in row else "fit"
    if use not in ("fit", "check"):
        message = f"`{use}` is no use of a row"
        raise UsageError([Problem("TW353", "", message, "write fit or check", row["use"].origin)])
    name = row["name"].text if "name" in row else f"row {number}"
    kept: Use = "check" if use == "check" else "fit"
    return StepRow(name, scenario, seconds, kept, _where(row), _decode(row, scenario))


def _decode(row: Row, scenario: Scenario) -> tuple[int, int] | None:
    """The engine's pass that the row is of."""
    cells = [row[name] for name in ("decoding", "cached") if name in row]
    if not cells:
        return None
    place = cells[0].origin
    if len(cells) < 2 or not all(cell.text.isdigit() and int(cell.text) for cell in cells):
        message = "a pass has whole numbers of sequences `decoding` and of tokens `cached`"
        raise UsageError([Problem("TW353", "", message, "write both, from 1 on", place)])
    if scenario.rl is None:
        message = f"`{scenario.name}` has no inference engine, and the row is of its passes"
        raise UsageError([Problem("TW353", "", message, "name one with `rl.rollout`", place)])
    return int(cells[0].text), int(cells[1].text)


def _where(row: Row) -> Origin:
    return next(iter(row.values())).origin


def _seconds(row: Row) -> float:
    """Seconds of a step: a number, or a quantity with its unit."""
    cell = row.get("seconds")
    if cell is None:
        raise UsageError([Problem("TW353", "", "a row without seconds", "", _where(row))])
    text = cell.text
    try:
        value = units.parse(f"{text}s" if is_number(text) else text, "seconds")
    except units.QuantityError as error:
        raise UsageError([Problem("TW353", "", error.message, error.hint, cell.origin)]) from None
    if not 0 < value < 86400:
        message = f"a step of {text} is none that can be predicted"
        raise UsageError([Problem("TW353", "", message, "write its seconds", cell.origin)])
    return value


def _hardware(row: Row, plain: bool) -> list[tuple[str, Cell]]:
    """Node, nodes and fabric of a row, from its GPU and their count where it names no more."""
    found: list[tuple[str, Cell]] = []
    node = row.get("node")
    if node is None and "gpu" in row:
        node = replace(row["gpu"], text=_node_of(row["gpu"]))
        found.append(("cluster.node", node))
    if node is None:
        return found
    try:
        part = load_part("nodes", node.text).spec
    except UsageError:  # beside --defaults: the loader finds it, or says what is wrong
        part = None
    if "gpus" in row and part is not None:
        gpus = row["gpus"]
        count = int(gpus.text) if gpus.text.isdecimal() else 0
        if not count or (count > part.gpus and count % part.gpus):
            message = f"`{gpus.text}` GPUs are no whole nodes of {part.gpus}"
            raise UsageError([Problem("TW353", "", message, "", gpus.origin)])
        if count < part.gpus:
            found.append(("cluster.node.gpus", gpus))
        found.append(("cluster.nodes", replace(gpus, text=str(max(1, count // part.gpus)))))
    if plain and "fabric" not in row and part is not None:
        found.append(("cluster.fabric", replace(node, text=fabric_of(part.nic.bandwidth, node))))
    return found


def usual_node(gpu: str) -> str | None:
    """The one node of the catalog with a GPU, or the one after which all others are named; None
    where there are several, or none."""
    having = _nodes().get(gpu, ())
    usual = min(having, key=len, default="")
    return usual if usual and all(one.startswith(usual) for one in having) else None


def _node_of(cell: Cell) -> str:
    """The usual node with a GPU."""
    name = _gpu_name(cell)
    if (usual := usual_node(name)) is not None:
        return usual
    having = _nodes()[name]
    message = f"{len(having)} nodes have the GPU `{name}`"
    fix = f"add a column `node`: {', '.join(having)}" if having else "add a column `node`"
    raise UsageError([Problem("TW356", "", message, fix, cell.origin)])


def _gpu_name(cell: Cell) -> str:
    try:
        return load_part("gpus", cell.text).spec.name
    except UsageError as error:
        raise UsageError(replace(p, origin=cell.origin) for p in error.problems) from None


@cache
def _nodes() -> Mapping[str, tuple[str, ...]]:
    """Nodes of the shipped catalog by the name of their GPU."""
    found: dict[str, tuple[str, ...]] = {
        load_part("gpus", name).spec.name: () for name in catalog_parts("gpus")
    }
    for name in catalog_parts("nodes"):
        gpu = load_part("nodes", name).spec.gpu.name
        found[gpu] = (*found.get(gpu, ()), name)
    return found


def fabric_of(rate: float, node: Cell) -> str:
    """The plain fat tree whose links are as fast as a node's NICs."""
    name = f"rail-fat-tree-{round(rate * 8e-9)}g"
    if name in catalog_parts("fabrics"):
        return name
    message = f"no fabric of the catalog is as fast as the NICs of `{node.text}`"
    fix = f"add a column `fabric`: {', '.join(catalog_parts('fabrics'))}"
    raise UsageError([Problem("TW356", "", message, fix, node.origin)])


def _fields(row: Row, plain: bool) -> list[tuple[str, Cell]]:
    """The columns of a row that are fields, with units where a table leaves them out."""
    found: list[tuple[str, Cell]] = []
    for name, cell in row.items():
        if name in OWN:
            continue
        path = FIELDS.get(name, name)
        text = cell.text
        if name in _BARE and text.isdecimal():
            text += _BARE[name]
        if path in _LISTS and not text.startswith("["):
            words = "" if text == "none" else text.replace("+", " ").replace(" ", ", ")
            text = f"[{words}]"
        found.append((path, replace(cell, text=text)))
    # The loader reads a batch of sequences once it knows their length.
    empty = [name for name in NEEDED if plain and not any(_says(c, name) for c in row)]
    if empty:
        message = f"a row without {', '.join(empty)}"
        raise UsageError([Problem("TW353", "", message, "", _where(row))])
    return found


_LISTS: Final = frozenset({"memory.recompute", "memory.fp8_store", "memory.offload"})


def _placed(
    problems: Iterable[Problem], columns: Sequence[tuple[str, Cell]], named: Origin | None
) -> list[Problem]:
    """Problems of an override at the cell that it is from, of no place at the one that names the
    scenario."""
    placed: list[Problem] = []
    for problem in problems:
        origin, count = problem.origin or named, len(columns)
        if origin and origin.file == "--set":
            inside = 0 < origin.line <= count
            own = replace(origin, line=origin.line - count)
            origin = columns[origin.line - 1][1].origin if inside else own
        placed.append(replace(problem, origin=origin))
    return placed


def _refuse_data(row: Row, scenario: Scenario) -> None:
    """Plans the row, and compares the ranks that are left for data with what it says."""
    problems = dict.fromkeys(scenario.locate(_plan_problems(scenario)))
    if problems:
        raise ScenarioError(replace(p, origin=_where(row)) for p in problems)
    cell = row.get("data")
    if cell is None:
        return
    data = plan(scenario).mesh.data
    if cell.text != str(data):
        message = f"`data` is {cell.text}, and the other columns leave {data}"
        fix = "GPUs / (tensor x context x pipeline); correct one, or leave `data` out"
        raise UsageError([Problem("TW357", "", message, fix, cell.origin)])


def _plan_problems(scenario: Scenario) -> tuple[Problem, ...]:
    try:
        plan(scenario)
    except TwinError as error:
        return error.problems
    return ()


def _refuse_gpus(found: Sequence[StepRow]) -> None:
    """A profile is of one GPU."""
    first = found[0].scenario.cluster.node.gpu.name
    for step in found:
        own = step.scenario.cluster.node.gpu.name
        if own != first:
            message = f"rows of {first} and of {own}: a profile is of one GPU"
            fix = "keep one GPU's rows per file"
            raise UsageError([Problem("TW354", "", message, fix, step.origin)])
