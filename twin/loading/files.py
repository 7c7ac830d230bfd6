"""Scenario files on disk: which file a name means, and the files that it extends.

The scenario inside an exported page, so that `twin run report.html` answers it again.

Numbers of a scenario that have a range, and the scenario with another number in its place.
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from twin.errors import Origin, Problem, UsageError
from twin.loading.kept_trees import keep_tree, kept_tree
from twin.loading.tree import Branch, Items, Leaf, Node, hint
from twin.loading.yaml_text import read_yaml, split_lines
from twin.scenario import Scenario
from twin.spec.base import Spec

BEGIN = '<script type="application/yaml" id="scenario">'
"""The line before the scenario."""
END = "</script>"
"""The line after it."""


def scenario_in(page: str) -> str:
    """The scenario of a page, every line where it stands there, so that positions hold; empty where
    there is none."""
    lines = page.split("\n")
    if BEGIN not in lines:
        return ""
    first = lines.index(BEGIN) + 1
    last = lines.index(END, first) if END in lines[first:] else len(lines)
    return "\n" * first + "\n".join(lines[first:last])


Arrival = Literal["extends", "names"]
"""How a file comes in: a scenario extends it, or names it as a catalog part."""

_PACKAGE = Path(__file__).parents[1]
STUDIES = Path("studies")
"""The folder of the shipped studies, which are named with it."""
_MAX_GENERATIONS = 100
"""Files that extend each other in a row."""
_MAX_BYTES = 100_000_000
"""Of a scenario: pages take some megabytes."""
_MOST_BYTES = 2_000_000_000
"""Of any file."""
_LARGEST = 64_000_000_000
"""Of one that is read in pieces: OURS, beyond all that profilers write."""
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_STREAMS = Path("/dev")
"""Where a process finds its open streams: /dev/stdin, /dev/fd/63."""


def shipped_folder() -> Path:
    """Where the scenarios of this installation are: inside the package of an installed wheel,
    beside it in a checkout."""
    installed = _PACKAGE / "_scenarios"
    return installed if installed.is_dir() else _PACKAGE.parent / "scenarios"


def shipped_scenarios() -> tuple[str, ...]:
    """The names of the shipped scenarios, sorted."""
    return tuple(sorted(path.stem for path in shipped_folder().glob("*.yaml")))


def find_scenario(name: str | Path) -> Path:
    """The file that a path means, or the bare name of a shipped scenario, or `studies/NAME` of a
    shipped study; `-` is standard input.

    Raises `UsageError` with the nearest names where there is none.
    """
    path = Path("/dev/stdin" if str(name) == "-" else name)
    if _can_be_read(path):
        return path
    shipped = shipped_folder() / f"{name}.yaml"
    if (path.name == str(name) or path.parent == STUDIES) and _can_be_read(shipped):
        return shipped
    message = f"there is no scenario `{name}`"
    raise UsageError([Problem("TW001", "", message, _nearest_file(path))])


def _can_be_read(path: Path) -> bool:
    """True for files and pipes."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # such as a name that is longer than a file system takes
        return False


def _nearest_file(path: Path) -> str:
    try:
        beside = sorted(str(entry) for entry in path.parent.glob("*.yaml") if entry.is_file())
    except OSError:
        beside = []
    names = [*beside, *shipped_scenarios()]
    return hint(str(path), names, "give a file, or one of the shipped")


def display(path: Path) -> str:
    """A path as a reader knows it: relative to where the command runs, if it is below."""
    if not path.is_absolute():
        return os.path.normpath(path)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was deleted under a shell that is still in it
        return str(path)
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read_tree(
    path: Path, arrival: Origin | None = None, how: Arrival = "extends"
) -> tuple[Branch | None, list[Problem]]:
    """The mapping that a YAML file holds (None where it holds none), and what is wrong with it.
    `arrival` is the place that brought the file in."""
    name = display(path)
    try:
        text = read_text(path)
    except UsageError as error:
        return None, [replace(problem, origin=arrival) for problem in error.problems]
    if path.suffix.lower() in (".html", ".htm"):
        text = scenario_in(text)
        if not text:
            fix = "`twin export SCENARIO --format html` writes pages that do"
            message = f"the page `{name}` holds no scenario"
            return None, [Problem("TW005", "", message, fix, arrival)]
    tree, problems = _tree_of(text, name, _kept_name(path), arrival, how)
    return tree, list(problems)


def _kept_name(path: Path) -> str:
    """The name under which the tree of a shipped file, or of one beside our code, is kept; empty of
    another file."""
    whole = path.absolute()  # in a checkout people write `scenarios/...`
    for folder in (shipped_folder(), _PACKAGE):
        if whole.is_relative_to(folder):
            return ".".join(whole.relative_to(folder).parts)
    return ""


def read_text(path: Path) -> str:
    """What a file says, unpacked where gzip packed it. Raises `UsageError` where it cannot be read,
    is no text, does not end, or is a named pipe or device, at which a reader would wait."""
    name = display(path)
    try:
        with unpacked(path) as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            reason = f"is larger than {_MAX_BYTES // 1_000_000} MB"
        else:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    raise UsageError([Problem("TW001", "", f"`{name}` {reason}")])


def opened(path: Path, most: int = _MOST_BYTES) -> BinaryIO:
    """A regular file of at most so many bytes (2 GB), or a stream of this process (`-`, `<(...)`).
    Raises OSError for another thing, such as a device or a named pipe, which a reader might read
    for ever."""
    # Without the flag, opening a pipe that nobody writes waits for ever.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    found = os.fstat(descriptor)
    wrong = errno.EFBIG if found.st_size > most else 0
    if not stat.S_ISREG(found.st_mode) and _STREAMS not in path.absolute().parents:
        wrong = errno.EINVAL
    if wrong:
        os.close(descriptor)
        large = f"larger than {most / 1e9:g} GB"
        told = {errno.EFBIG: large, errno.EINVAL: "neither a file nor a stream"}
        raise OSError(wrong, told[wrong], str(path))
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def unpacked(path: Path) -> BinaryIO:
    """The content of a file of at most 64 GB, unpacked where gzip packed it. Raises OSError as
    `opened` does; a packed file that is torn or damaged ends there."""
    return content(cast("BufferedReader", opened(path, _LARGEST)))


def content(raw: BufferedReader) -> BinaryIO:
    """The same of what was opened already."""
    return BufferedReader(_Unpacked(raw), _PIECE) if raw.peek(2)[:2] == _GZIP else raw


class _Unpacked(RawIOBase):
    """The content of a gzip file, as far as it goes."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self._rest, self._member = raw, b"", _gunzip()

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int:
        while True:
            data = self._rest or self._raw.read(_PIECE)
            try:
                text = self._member.decompress(data, len(buffer))
            except zlib.error:
                return 0
            self._rest = self._member.unconsumed_tail
            if self._member.eof:
                self._rest, self._member = self._member.unused_data, _gunzip()
            if text or not data:
                buffer[: len(text)] = text
                return len(text)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _gunzip() -> Any:
    """What unpacks one member of a gzip file, as zlib calls that format."""
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


def read_bytes(path: Path) -> bytes:
    """The bytes of a file that others may have written. Raises OSError as `opened` does."""
    with opened(path) as file:
        return file.read(_MOST_BYTES)


@lru_cache(maxsize=128)
def _tree_of(
    text: str, name: str, kept: str, arrival: Origin | None, how: Arrival
) -> tuple[Branch | None, tuple[Problem, ...]]:
    """The same of a file's text, `kept` under a name for the next process. Parsing is most of what
    loading takes, and the same few files come again with every override, so the last ones are
    remembered; nobody changes a tree."""
    lines = split_lines(text)

    def locate(line: int, column: int, width: int) -> Origin:
        shown = lines[line] if line < len(lines) else ""
        return Origin(name, line + 1, column + 1, shown, width, arrival, how)

    known = kept_tree(kept, text, locate) if kept else None
    tree, problems = (known, []) if known else read_yaml(text, locate)
    if kept and tree and not known and not problems:
        keep_tree(kept, text, tree)
    if isinstance(tree, Branch):
        return tree, tuple(problems)
    if not problems:
        place = tree.origin if tree else locate(0, 0, 1)
        problems = [Problem("TW005", "", "the file must hold keys with values", "", place)]
    return None, tuple(problems)


@dataclass(slots=True)
class Family:
    """A scenario file with everything that it extends."""

    members: dict[Path, Branch] = field(default_factory=dict[Path, Branch])
    """What every file says by itself."""
    lines: dict[Path, tuple[Path, ...]] = field(default_factory=dict[Path, tuple[Path, ...]])
    """What every file comes to: from the most basic one to itself, each over those before it."""
    folders: list[Path] = field(default_factory=list[Path])
    """The folders of these files, the scenario's own first."""
    problems: list[Problem] = field(default_factory=list[Problem])
    complete: bool = True
    """False where a file could not be read, so that what it would have said is not missed."""

    def trees(self, path: Path) -> list[Branch]:
        """From the most basic file to the one at `path`; each goes over those before it."""
        return [self.members[member] for member in self.lines[path]]


def read_family(path: Path) -> Family:
    """The file, and all that it extends, depth first; each file is read once."""
    family = Family()
    _read_member(path, None, (), family)
    return family


def _read_member(
    path: Path, arrival: Origin | None, descendants: tuple[Path, ...], family: Family
) -> None:
    # A pipe has no folder, and is read as if it were a file in the current one.
    folder = path.parent if path.is_file() else Path()
    if folder not in family.folders:
        family.folders.append(folder)
    tree, problems = read_tree(path, arrival)
    family.problems.extend(problems)
    if tree is None:
        family.complete = False
        family.lines[path] = ()
        return
    lineage = (*descendants, path.resolve())
    line: list[Path] = []
    for leaf in _parents(tree, family):
        parent = _find_parent(str(leaf.value), folder)
        if parent is None:
            near = _nearest_file(folder / str(leaf.value))
            missing = Problem("TW001", "extends", f"no file `{leaf.value}`", near, leaf.origin)
            family.problems.append(missing)
            family.complete = False
        elif parent.resolve() in lineage:
            family.problems.append(_circle(leaf, lineage[lineage.index(parent.resolve()) :]))
            family.complete = False
        elif len(lineage) >= _MAX_GENERATIONS:
            message = f"more than {_MAX_GENERATIONS} files extend each other in a row"
            family.problems.append(Problem("TW005", "extends", message, "", leaf.origin))
            family.complete = False
        else:
            if parent not in family.lines:
                _read_member(parent, leaf.origin, lineage, family)
            line.extend(family.lines[parent])
    own = {key: child for key, child in tree.children.items() if key != "extends"}
    family.members[path] = Branch(own, tree.origin)
    # Of a file that comes in twice the first time says nothing that the last does not say again.
    family.lines[path] = (*reversed(dict.fromkeys(reversed(line))), path)


def _parents(tree: Branch, family: Family) -> list[Leaf]:
    """The names under `extends`: one, or a list."""
    child = tree.children.get("extends")
    if child is None:
        return []
    nodes: Sequence[Node] = child.node.nodes if isinstance(child.node, Items) else (child.node,)
    names: list[Leaf] = []
    for node in nodes:
        if isinstance(node, Leaf) and isinstance(node.value, str):
            names.append(node)
        else:
            message = "`extends` takes a file name, or a list of them"
            family.problems.append(Problem("TW005", "extends", message, "", node.origin))
    return names


def _find_parent(name: str, folder: Path) -> Path | None:
    shipped = shipped_folder()
    candidates = (folder / name, shipped / name, shipped / f"{name}.yaml")
    return next((path for path in candidates if _can_be_read(path)), None)


def _circle(leaf: Leaf, loop: Sequence[Path]) -> Problem:
    names = " -> ".join(path.name for path in (*loop, loop[0]))
    message = f"these files extend each other: {names}"
    return Problem("TW004", "extends", message, "remove one `extends` of the circle", leaf.origin)


def read_data(path: Path) -> Any:
    """The plain values of a YAML file of ours, such as a table beside its code."""
    from ruamel.yaml import YAML  # noqa: PLC0415  most commands read kept trees only

    # ruamel leaves the type of its streams open.
    return YAML(typ="safe").load(path)  # pyright: ignore[reportUnknownMemberType]


def ranges(scenario: Scenario, roots: tuple[str, ...]) -> Iterator[tuple[str, Any, Any]]:
    """Path, low end and high end of every number below these paths whose source gives a range.
    Numbers in lists (reserves of memory) have no key of their own, and are left out."""
    for path, known in scenario.ledger.items():
        in_a_list = any(key.isdigit() for key in path.split("."))
        if known.range is not None and path.startswith(roots) and not in_a_list:
            yield path, known.range[0], known.range[1]


def with_number(scenario: Scenario, path: str, value: Any) -> Scenario:
    """The scenario with another number at a path, its section checked again alone.

    Raises pydantic's `ValidationError` where the section does not allow it.
    """
    section, *keys = path.split(".")
    own: Spec = getattr(scenario, section)
    dumped = own.model_dump(mode="json", by_alias=True)
    inner: dict[str, Any] = dumped
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    changed: dict[str, Any] = {section: type(own).model_validate(dumped)}
    return scenario.model_copy(update=changed)


def table(module: str, name: str) -> dict[Any, Any]:
    """A table of words or settings of a module (`__name__`), from `tables.toml` in its room; lists
    become tuples."""
    _, room, *path = module.split(".")
    found = _tables(room)
    for key in (*path, name):
        found = found[key]
    return {
        key: tuple(cast("list[Any]", one)) if isinstance(one, list) else one
        for key, one in found.items()
    }


@cache
def _tables(room: str) -> dict[str, Any]:
    file = Path(__file__).parents[1] / room / "tables.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))
