"""The first verb: a scenario file, with what it extends, names and is overridden by, to a
`Scenario` or an `UpdateScenario`.

Any section from a YAML file of its own: what it extends, the catalog parts that it names, and
`--set` overrides, with the place of every mistake.

A scenario is more than its sections (sources, calibrations, axes); `twin.loading.load` reads it.
This is for programs beside the simulator whose settings are a `Spec`, such as a trainer's.

`--set a.b=value` to a tree: the value is YAML, and every part of the argument has a position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from twin.errors import Origin, Problem, ScenarioError, UsageError
from twin.loading.catalog import (
    SLOTS,
    Library,
    PartKind,
    is_a_file,
    open_axis,
    open_library,
    open_name,
    part_names,
)
from twin.loading.diagnose import diagnose
from twin.loading.files import Family, display, find_scenario, read_family
from twin.loading.sourcing import ledger, source_numbers
from twin.loading.tree import (
    PHASES,
    Branch,
    Child,
    Items,
    KeyPath,
    Leaf,
    Node,
    find,
    hint,
    in_a_run,
    merge,
    plain,
    replace_at,
    told_once,
    walk,
    with_phases,
)
from twin.loading.typical_software import with_software
from twin.loading.yaml_text import read_yaml
from twin.network.topology import kinds
from twin.scenario import AnyScenario, Provenance, Root, Scenario
from twin.spec.axis import axes, unions
from twin.spec.base import Spec
from twin.train import OF_A_RECIPE

ENGINES = (
    ("data", "engine"),
    ("rl", "rollout", "engine"),
    ("rl", "rollout", "prefill", "engine"),
)
"""Where a scenario has an engine, whose software brings its calibration."""
AXES = axes(Scenario)
"""The fields of a scenario whose choices are the members of a package; a weight update has none."""
EXTENDS = "extends"
"""The key of a section that changes a part of the catalog, which it names."""
UNIONS = unions(Scenario)
"""The fields of a scenario whose settings depend on their `kind`; those of a weight update are
among them."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What the names in a scenario stand for, and what went wrong in finding that out."""

    library: Library
    problems: list[Problem] = field(default_factory=list[Problem])
    lost: list[KeyPath] = field(default_factory=list[KeyPath])
    """Sections whose part could not be read: what they lack is no further mistake."""

    def open(self, path: KeyPath, leaf: Leaf) -> Node:
        """The section that a name at this path stands for; the leaf itself elsewhere."""
        path = in_a_run(path)
        if path not in SLOTS and path not in AXES:
            return leaf
        kind = SLOTS.get(path)
        node, problems = open_name(self.library, kind, leaf) if kind else open_axis(leaf)
        self.problems.extend(problems)
        if problems:
            self.lost.append(path)
        return node


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario | Any:
    """The scenario of a file, or of the bare name of a shipped one, under `a.b=value` overrides.

    `Any`, because the file says what it is: a training run, or a weight update. `load_any` is for
    those who have to ask.

    Raises `UsageError` where the file or an override is no such thing, and `ScenarioError` with
    everything that is wrong in the scenario.
    """
    return load_any(path, overrides)


def load_any(path: str | Path, overrides: Sequence[str] = ()) -> AnyScenario:
    """As `load`, for those who have to ask what the file holds."""
    file = find_scenario(path)
    over = read_overrides(overrides)
    family = read_family(file)
    trees = family.trees(file)
    if not trees:
        raise ScenarioError(_ordered(family.problems, file))
    library, problems = open_library(family.folders)
    names = _Names(library, [*family.problems, *problems])
    tree = _merged([*trees, *over], names)
    tree = _open_all(_with_calibration(tree, names), names)
    tree = with_phases(tree, partial(_over, names=names))
    return _validated(tree, names, family, file)


def named_files(trees: Iterable[Branch]) -> Iterator[tuple[KeyPath, Leaf]]:
    """Sections that trees leave to files of their own."""
    for path, (_, node) in (found for tree in trees for found in walk(tree)):
        if isinstance(node, Leaf) and in_a_run(path) in AXES and is_a_file(node.value):
            yield path, node


def _merged(trees: Iterable[Branch], names: _Names) -> Branch:
    """The trees over each other, the last on top."""
    sourced: list[Node] = []
    for tree in _below_recipes(list(trees)):
        node, problems = source_numbers(tree, names.library.sources, None)
        names.problems.extend([*problems, *_out_of_place(node)])
        assert isinstance(node, Branch)
        sourced.extend(_refined(node))
    whole = reduce(partial(merge, open_name=names.open, unions=UNIONS), sourced)
    assert isinstance(whole, Branch)
    return whole


def _below_recipes(trees: Sequence[Branch]) -> Iterator[Branch]:
    """The trees, each without the numbers that it writes as if there were no recipe where a tree
    above it names one."""
    recipes = [find(tree, ("train", "recipe")) for tree in trees]
    for place, tree in enumerate(trees):
        train = find(tree, ("train",))
        if train is not None and isinstance(train.node, Branch) and any(recipes[place + 1 :]):
            kept = {
                key: child
                for key, child in train.node.children.items()
                if key not in OF_A_RECIPE or plain(child.node) != OF_A_RECIPE[key]
            }
            below = Child(train.key, Branch(kept, train.node.origin))
            yield replace_at(tree, ("train",), below)
        else:
            yield tree


def _refined(tree: Branch) -> Iterator[Branch]:
    """The tree with the names of the parts that its sections extend, and over it what each changes:
    `node: {extends: NAME, gpus: 64}`."""
    changed: list[Branch] = []
    for path in SLOTS:
        child = find(tree, path)
        if child is None or not isinstance(child.node, Branch):
            continue
        named = child.node.children.get(EXTENDS)
        if named is None:
            continue
        rest = {key: one for key, one in child.node.children.items() if key != EXTENDS}
        over: Child = Child(child.key, Branch(rest, child.node.origin))
        for key in reversed(path[1:]):
            over = Child(child.key, Branch({key: over}, child.key))
        changed.append(Branch({path[0]: over}, child.key))
        tree = replace_at(tree, path, Child(child.key, named.node))
    yield tree
    for one in changed:
        yield from _refined(one)


def _out_of_place(tree: Node) -> list[Problem]:
    """Sources of what no catalog part could hold, which nobody would ever show."""
    message = "only numbers of the model, the cluster and the calibration have a source"
    return [
        Problem("TW007", ".".join(path), message, "write the value by itself", node.origin)
        for path, (_, node) in walk(tree)
        if isinstance(node, Leaf) and node.known and not _in_a_part(path)
    ]


def _in_a_part(path: KeyPath) -> bool:
    return any(in_a_run(path)[: len(slot)] == slot for slot in SLOTS)


def _with_calibration(tree: Branch, names: _Names) -> Branch:
    """A scenario without a calibration uses that of its software on its GPU, or else its GPU's;
    one without a name refines that."""
    tree = _open_all(tree, names)
    if root_of(tree.children) is Scenario:
        tree = _open_all(with_software(tree), names)
    gpu = find(tree, ("cluster", "node", "gpu", "name"))
    for path in ENGINES:
        tree = _with_kernels(tree, path, gpu)
    of_gpu = find(tree, ("cluster", "node", "gpu", "calibration"))
    if gpu is not None and isinstance(gpu.node, Leaf):
        of_gpu = find(tree, ("software", "calibrations", str(gpu.node.value))) or of_gpu
    own = tree.children.get("calibration")
    if of_gpu is None or not isinstance(of_gpu.node, Leaf):
        return tree
    if "calibration" not in root_of(tree.children).model_fields:
        return tree
    if own is None:
        return replace_at(tree, ("calibration",), of_gpu)
    if isinstance(own.node, Branch) and "name" not in own.node.children:
        refined = merge(of_gpu.node, own.node, names.open, UNIONS, ("calibration",))
        return replace_at(tree, ("calibration",), Child(own.key, refined))
    return tree


def _with_kernels(tree: Branch, path: KeyPath, gpu: Child | None) -> Branch:
    """An engine without a calibration uses that of its software on its GPU."""
    if gpu is None or not isinstance(gpu.node, Leaf) or find(tree, (*path, "calibration")):
        return tree
    own = find(tree, (*path, "software", "calibrations", str(gpu.node.value)))
    return tree if own is None else replace_at(tree, (*path, "calibration"), own)


def _open_all(tree: Branch, names: _Names) -> Branch:
    """Every name replaced by what it stands for, outer sections first."""
    for path in (*SLOTS, *AXES):
        child = find(tree, path)
        if child is not None and isinstance(child.node, Leaf) and path not in names.lost:
            tree = replace_at(tree, path, Child(child.key, names.open(path, child.node)))
    return tree


def _over(base: Branch, over: Branch, names: _Names) -> Branch:
    """Sections of a phase over those of the scenario, with their names opened."""
    opened = partial(merge, open_name=names.open, unions=UNIONS)
    whole = reduce(opened, _refined(over), cast(Node, base))
    assert isinstance(whole, Branch)
    return _open_all(whole, names)


def _validated(tree: Branch, names: _Names, family: Family, file: Path) -> Any:
    kind = root_of(tree.children)
    misplaced = _of_another_kind(tree, kind)
    problems = [*names.problems, *_unknown_topology(tree), *misplaced]
    told = {problem.path for problem in misplaced}
    try:
        scenario = kind.model_validate(plain(tree), context=_provenance(tree))
    except ValidationError as error:
        problems += [
            _with_part_names(problem, names.library)
            for problem in diagnose(error, kind, tree)
            if problem.path not in told and not _follows(problem, names.lost, family.complete)
        ]
    else:
        if not problems:
            return scenario
    raise ScenarioError(_ordered(told_once(problems), file))


def root_of(sections: Iterable[str]) -> type[Root]:
    """The class of a scenario with these sections: that of the kind of work whose section it has,
    else a training run. Kinds are found by scanning their package."""
    package = import_module("twin.kinds")
    for found in iter_modules(package.__path__):
        if found.ispkg:
            import_module(f"twin.kinds.{found.name}")
    named = {root.section: root for root in Root.__subclasses__() if root.section}
    return next((named[name] for name in sections if name in named), Scenario)


def _of_another_kind(tree: Branch, kind: type[Root]) -> list[Problem]:
    """Sections of training in a scenario of another class, which its own section makes it."""
    others = Scenario.model_fields.keys() - kind.model_fields.keys()
    section = f"`{kind.section}`"
    what = kind.section.replace("_", " ")
    return [
        Problem(
            "TW150",
            key,
            f"`{key}` belongs to a training run, and {section} makes this a {what}",
            f"remove `{key}`, or {section}",
            child.key,
        )
        for key, child in tree.children.items()
        if key in others
    ]


def _unknown_topology(tree: Branch) -> list[Problem]:
    """The fabric's kind is checked here, since the sections know nothing of the network."""
    child = find(tree, ("cluster", "fabric", "kind"))
    kind = child.node.value if child and isinstance(child.node, Leaf) else None
    if child is None or not isinstance(kind, str) or kind in kinds():
        return []
    message = f"`{kind}` is no kind of `fabric`"
    path, origin = "cluster.fabric.kind", child.node.origin
    return [Problem("TW016", path, message, hint(kind, kinds()), origin)]


def _follows(problem: Problem, lost: Iterable[KeyPath], complete: bool) -> bool:
    """True for what is only wrong because something else is: a part or a file could not be read,
    or there is no GPU to give the calibration."""
    if problem.code == "TW011" and (not complete or problem.path == "calibration"):
        return True
    path = in_a_run(tuple(problem.path.split(".")))
    return any(path[: len(section)] == section for section in lost)


def _with_part_names(problem: Problem, library: Library) -> Problem:
    """Where a whole section is missing that a catalog name could fill, the names."""
    kind = SLOTS.get(tuple(problem.path.split(".")))
    if kind is None or problem.code not in ("TW011", "TW014"):
        return problem
    return replace(problem, hint=hint("", part_names(library, kind), f"name one of the {kind}"))


def _provenance(tree: Branch) -> Provenance:
    values: dict[str, Origin] = {}
    keys: dict[str, Origin] = {}
    for path, (key, node) in walk(tree):
        keys[".".join(path)] = key
        if isinstance(node, Leaf | Items):
            values[".".join(path)] = node.origin
    phases = tree.children.get(PHASES)
    listed = phases.node.nodes if phases and isinstance(phases.node, Items) else ()
    of_phases = [(PHASES, str(index), *slot) for index in range(len(listed)) for slot in SLOTS]
    return Provenance(values, keys, ledger(tree, (*SLOTS, *of_phases)))


def _ordered(problems: Iterable[Problem], file: Path) -> list[Problem]:
    """Each problem once: the scenario's own file first, then other files, then overrides, each
    from top to bottom."""
    own = display(file)

    def place(problem: Problem) -> tuple[int, str, int, int]:
        origin = problem.origin
        if origin is None:
            return (0, "", 0, 0)
        rank = {own: 1, "--set": 3}.get(origin.file, 2)
        return (rank, origin.file, origin.line, origin.column)

    return sorted(dict.fromkeys(problems), key=place)


SpecT = TypeVar("SpecT", bound=Spec)

_NO_PARTS: Mapping[KeyPath, PartKind] = MappingProxyType({})


def load_config(
    root: type[SpecT],
    file: Path,
    overrides: Sequence[str] = (),
    parts: Mapping[KeyPath, PartKind] = _NO_PARTS,
) -> SpecT:
    """The section that a file holds, under `a.b=value` overrides; at the paths `parts` a name
    stands for a part of the catalog.

    Raises `UsageError` where an override is none, and `ScenarioError` with all that is wrong.
    """
    over = read_overrides(overrides)
    family = read_family(file)
    trees = family.trees(file)
    if not trees:
        raise ScenarioError(family.problems)
    library, problems = open_library(family.folders)
    problems = [*family.problems, *problems]
    lost: list[KeyPath] = []
    named = (*parts, *axes(root))

    def opened(path: KeyPath, leaf: Leaf) -> Node:
        if path not in named:
            return leaf
        kind = parts.get(path)
        node, wrong = open_name(library, kind, leaf) if kind else open_axis(leaf)
        problems.extend(wrong)
        if wrong:
            lost.append(path)
        return node

    tree: Node = Branch({}, trees[-1].origin)
    for layer in (*trees, *over):
        tree = merge(tree, layer, opened, unions(root))
    assert isinstance(tree, Branch)
    for path in named:
        child = find(tree, path)
        if child is not None and isinstance(child.node, Leaf) and path not in lost:
            tree = replace_at(tree, path, Child(child.key, opened(path, child.node)))
    return _validated_config(root, tree, problems, lost, family)


def _validated_config(
    root: type[SpecT],
    tree: Branch,
    problems: list[Problem],
    lost: Sequence[KeyPath],
    family: Family,
) -> SpecT:
    try:
        spec = root.model_validate(plain(tree))
    except ValidationError as error:
        problems += [
            problem
            for problem in diagnose(error, root, tree)
            if not _follows_lost(problem, lost, complete=family.complete)
        ]
    else:
        if not problems:
            return spec
    raise ScenarioError(dict.fromkeys(problems))


def _follows_lost(problem: Problem, lost: Sequence[KeyPath], *, complete: bool) -> bool:
    """True for what is only wrong because a part or a file could not be read."""
    path = tuple(problem.path.split("."))
    inside = any(path[: len(section)] == section for section in lost)
    return inside or (problem.code == "TW011" and not complete)


_FLAG = "--set "
"""Shown before the argument, so that the caret stands under what was typed."""
_MAX_DEPTH = 100


def read_overrides(arguments: Sequence[str]) -> list[Branch]:
    """One tree per argument, in order. Raises `UsageError` for those that are not `a.b=value`."""
    problems: list[Problem] = []
    trees = [
        tree
        for number, argument in enumerate(arguments, 1)
        if (tree := _read_one(argument, number, problems)) is not None
    ]
    if problems:
        raise UsageError(problems)
    return trees


def _read_one(argument: str, number: int, problems: list[Problem]) -> Branch | None:
    whole = Origin("--set", number, len(_FLAG) + 1, _FLAG + argument, len(argument))
    dotted, equals, text = argument.partition("=")
    if not equals:
        problems.append(Problem("TW005", "", *_no_value(argument), whole))
        return None
    steps = [
        (match[0], whole.at(len(_FLAG) + 1 + match.start(), max(1, len(match[0]))))
        for match in re.finditer(r"[^.]+|(?<![^.])(?=\.|$)", dotted)
    ]
    for step, origin in steps:
        if not step.strip():
            problems.append(Problem("TW005", "", *_no_key(argument), origin))
            return None
    if refusal := _no_place(steps[0][0].strip(), len(steps), text.strip()):
        problems.append(Problem("TW005", "", *refusal, whole))
        return None
    start = len(_FLAG) + len(dotted) + 1

    def locate(line: int, column: int, width: int) -> Origin:
        # A line break inside an argument is rare; such a value is pointed at as a whole.
        return whole.at(start + 1 + (0 if line else column), width)

    value, found = read_yaml(text, locate)
    problems.extend(found)
    node: Node = value or Leaf(None, whole.at(start, 1))
    for step, origin in reversed(steps):
        node = Branch({step.strip(): Child(origin, node)}, origin)
    assert isinstance(node, Branch)
    return node


def _no_value(argument: str) -> tuple[str, str]:
    return "an override needs a value", f"write `--set {argument.strip() or 'a.b'}=VALUE`"


def _no_place(first: str, depth: int, value: str) -> tuple[str, str] | None:
    """Why no scenario can have keys like these, where none can."""
    if first == "extends":
        return "only a file can extend another", f"write `extends: {value}` into the scenario"
    if depth > _MAX_DEPTH:
        return f"an override of {depth} keys", "sections are at most a few keys deep"
    return None


def _no_key(argument: str) -> tuple[str, str]:
    return f"`{argument}` has an empty key", "write keys with one dot between them, `a.b=VALUE`"
