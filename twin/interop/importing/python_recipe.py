"""Recipes that are Python functions (Megatron-Bridge's, torchtitan's), read without running them.

A function's assignments are followed: attributes of configurations, constructors with keywords,
calls of functions of the same checkout, tests and sums of known values. What is not known stays
unknown, and so does what depends on it; loops, comprehensions and everything else are left out. No
code is run and nothing outside of the checkout is read.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from twin.errors import Origin, Problem, UsageError
from twin.interop.importing.launch import Source
from twin.loading.files import display, read_text
from twin.loading.tree import Branch, Child, Items, Leaf, Node, hint

_MOST_STEPS: Final = 20_000
"""Statements that are followed."""
_DEEPEST: Final = 40
"""Calls in calls."""
_BY_NAME: Final = ("squared_relu",)
"""Functions of other packages that options name."""
_LONGEST: Final = 2_000_000
"""Characters of one module."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that the text does not say."""


UNKNOWN: Final = Unknown()


@dataclass(slots=True)
class Made:
    """An object that a constructor made: its class, and its fields."""

    name: str = ""
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    places: dict[str, Origin] = field(default_factory=dict[str, Origin])


Call: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], Any]
"""What a call is worth, from its arguments."""
_SUMS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b if _small(a, b) else UNKNOWN,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b if isinstance(a, int) else UNKNOWN,
}
_TESTS: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b or a == b,
    ast.IsNot: lambda a, b: a is not b and a != b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


@dataclass(frozen=True, slots=True)
class Module:
    """A file: its functions, its constants, and where its other names come from."""

    path: Path
    functions: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, ast.expr]
    imports: Mapping[str, tuple[str, str, int]]
    """Module, name there, and levels up, by the name here."""


@cache
def module_of(path: Path) -> Module:
    """The module of a file. Raises `UsageError` where it is no Python."""
    text = read_text(path)
    return module_of_text(text, path)


def module_of_text(text: str, path: Path) -> Module:
    """The same of its text."""
    place = Origin(display(path), 1, 1, "", 1)
    if len(text) > _LONGEST:
        message = f"more than {_LONGEST:,} characters"
        raise UsageError([Problem("TW002", "", message, "", place)])
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = f"not Python: {getattr(error, 'msg', 'too deep')}"
        raise UsageError([Problem("TW002", "", message, "", place)]) from None
    imports: dict[str, tuple[str, str, int]] = {}
    constants: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                imports[one.asname or one.name] = (node.module or "", one.name, node.level)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = node.value
    functions = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    return Module(path, functions, constants, imports)


@dataclass(slots=True)
class Reading:
    """What is known while recipes are read."""

    calls: Mapping[str, Call]
    """Calls whose worth is known, by the last name of what is called."""
    remarks: list[str] = field(default_factory=list[str])
    steps: int = 0
    depth: int = 0

    def call(self, module: Module, name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """What a function of a module returns."""
        found = self._function(module, name)
        if found is None or self.depth >= _DEEPEST:
            return UNKNOWN
        home, function = found
        self.depth += 1
        try:
            return self._body(home, function.body, _bound(self, home, function, args, named))
        except _Returned as returned:
            return returned.value
        finally:
            self.depth -= 1

    def _function(self, module: Module, name: str) -> tuple[Module, ast.FunctionDef] | None:
        for _ in range(_DEEPEST):
            if name in module.functions:
                return module, module.functions[name]
            if name not in module.imports:
                return None
            home, own, levels = module.imports[name]
            path = _path_of(module.path, home, levels)
            if path is None:
                return None
            module, name = module_of(path), own
        return None

    def _body(self, module: Module, body: Sequence[ast.stmt], names: dict[str, Any]) -> Any:
        for statement in body:
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise UsageError([Problem("TW042", "", "the recipe has too many statements", "")])
            self._statement(module, statement, names)
        return None

    def _statement(self, module: Module, node: ast.stmt, names: dict[str, Any]) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                found = self.value(module, value, names)
                for target in targets:
                    self._assign(module, target, found, names)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(module, target, self.value(module, value, names), names)
            case ast.Expr(value=ast.Call() as call):
                self.value(module, call, names)
            case ast.Return(value=value):
                raise _Returned(None if value is None else self.value(module, value, names))
            case ast.If(test=test, body=body, orelse=other):
                known = self.value(module, test, names)
                if not isinstance(known, Unknown):
                    self._body(module, body if known else other, names)
                elif _sets(node):
                    where = f"{display(module.path)}, line {node.lineno}"
                    self.remarks.append(f"A condition that the recipe does not decide: {where}.")
            case ast.With(body=body) | ast.Try(body=body):
                self._body(module, body, names)
            case _:
                pass

    def _assign(self, module: Module, target: ast.expr, value: Any, names: dict[str, Any]) -> None:
        match target:
            case ast.Name(id=name):
                names[name] = value
            case ast.Attribute(value=around, attr=name):
                owner = self._owner(module, around, names)
                if owner is not None:
                    owner.fields[name] = value
                    owner.places[name] = Origin(display(module.path), target.lineno, 1, "", 1)
            case ast.Tuple(elts=parts):
                for part in parts:
                    self._assign(module, part, UNKNOWN, names)
            case _:
                pass

    def _owner(self, module: Module, node: ast.expr, names: dict[str, Any]) -> Made | None:
        """The object whose attribute is set; one that nobody knows becomes an empty one."""
        match node:
            case ast.Name(id=name):
                if not isinstance(names.get(name), Made):
                    names[name] = Made()
                return names[name]
            case ast.Attribute(value=around, attr=name):
                owner = self._owner(module, around, names)
                if owner is None:
                    return None
                if not isinstance(owner.fields.get(name), Made):
                    owner.fields[name] = Made()
                return owner.fields[name]
            case _:
                return None

    def value(self, module: Module, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """What an expression is worth."""
        try:
            return self._value(module, node, names)
        except (TypeError, ValueError, KeyError, IndexError, ArithmeticError):
            return UNKNOWN

    def _value(  # noqa: C901, PLR0911, PLR0912  one case for each kind of expression
        self, module: Module, node: ast.expr, names: Mapping[str, Any]
    ) -> Any:
        def of(one: ast.expr) -> Any:
            return self.value(module, one, names)

        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._name(module, name, names)
            case ast.Attribute(value=around, attr=name):
                owner = of(around)
                if isinstance(owner, Made):
                    return owner.fields.get(name, UNKNOWN)
                return ast.unparse(node) if _is_dtype(node) else UNKNOWN
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [of(part) for part in parts]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                return {_key(of(key)): of(value) for key, value in pairs if key is not None}
            case ast.Subscript(value=held, slice=place):
                where = of(place)
                return of(held)[_key(where)]
            case ast.BinOp(left=left, op=op, right=right):
                a, b = of(left), of(right)
                return UNKNOWN if _open(a, b) else _SUMS[type(op)](a, b)
            case ast.UnaryOp(op=ast.USub(), operand=one):
                return -of(one)
            case ast.UnaryOp(op=ast.Not(), operand=one):
                known = of(one)
                return UNKNOWN if _open(known) else not known
            case ast.BoolOp(op=op, values=values):
                return _either(isinstance(op, ast.Or), [of(one) for one in values])
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                a, b = of(left), of(right)
                return UNKNOWN if _open(a, b) else _TESTS[type(op)](a, b)
            case ast.IfExp(test=test, body=body, orelse=other):
                known = of(test)
                return UNKNOWN if _open(known) else of(body if known else other)
            case ast.Call():
                return self._called(module, node, names)
            case _:
                return UNKNOWN

    def _name(self, module: Module, name: str, names: Mapping[str, Any]) -> Any:
        if name in names:
            return names[name]
        if name in module.constants:
            return self.value(module, module.constants[name], {})
        if name in module.imports:
            home, own, levels = module.imports[name]
            path = _path_of(module.path, home, levels)
            if path is not None and own in (other := module_of(path)).constants:
                return self.value(other, other.constants[own], {})
            if own in _BY_NAME:
                return own
        return UNKNOWN

    def _called(  # noqa: PLR0911  one for each kind of what is called
        self, module: Module, node: ast.Call, names: Mapping[str, Any]
    ) -> Any:
        args = [self.value(module, one, names) for one in node.args]
        named = {one.arg: self.value(module, one.value, names) for one in node.keywords if one.arg}
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in self.calls:
            return self.calls[name](args, named)
        if isinstance(called, ast.Attribute):
            owner = self.value(module, called.value, names)
            if name == "get" and isinstance(owner, dict):
                return cast("dict[Any, Any]", owner).get(_key(args[0]), *args[1:2])
            if isinstance(owner, Made) and name != "Config":
                return owner if name in _SAME else UNKNOWN
            made = ast.unparse(called)
            return _made(made, named, module, node) if name == "Config" else UNKNOWN
        if name in _BUILT_IN:
            return _BUILT_IN[name](args)
        if name[:1].isupper():
            return _made(name, named, module, node)
        return self.call(module, name, args, named)


_SAME: Final = frozenset({"to_megatron_provider", "finalize", "copy"})
"""Methods that return the object itself, for what is read here."""


class _Returned(Exception):  # noqa: N818  not an error: how a function ends
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _bound(
    reading: Reading,
    module: Module,
    function: ast.FunctionDef,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> dict[str, Any]:
    """Parameters with their arguments, or their defaults."""
    told = function.args
    every = [*told.posonlyargs, *told.args]
    defaults = [*(None,) * (len(every) - len(told.defaults)), *told.defaults]
    found: dict[str, Any] = {}
    pairs = [
        *zip(every, defaults, strict=True),
        *zip(told.kwonlyargs, told.kw_defaults, strict=True),
    ]
    for parameter, default in pairs:
        known = UNKNOWN if default is None else reading.value(module, default, {})
        found[parameter.arg] = named.get(parameter.arg, known)
    found |= {one.arg: value for one, value in zip(every, args, strict=False)}
    return found


def _made(name: str, named: Mapping[str, Any], module: Module, node: ast.Call) -> Made:
    place = Origin(display(module.path), node.lineno, 1, "", 1)
    return Made(name, dict(named), dict.fromkeys(named, place))


def _path_of(beside: Path, module: str, levels: int) -> Path | None:
    """The file of a module of the same checkout: from the folder of the importing file, or below
    the folder around it in which such a file is."""
    parts = Path(*module.split(".")) if module else Path()
    folders = [beside.parents[levels - 1]] if levels else list(beside.parents)[:12]
    for folder in folders:
        for file in (folder / parts.with_suffix(".py"), folder / parts / "__init__.py"):
            if module and file.is_file():
                return file
    return None


def _sets(node: ast.If) -> bool:
    """Whether a branch sets an attribute."""
    return any(
        isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Attribute)
        for one in ast.walk(node)
    )


def _is_dtype(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch"


def _open(*values: Any) -> bool:
    return any(isinstance(one, Unknown) for one in values)


def _key(value: Any) -> Any:
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


_MOST_LETTERS: Final = 10_000
"""Of a text or a list that is repeated."""


def _small(*values: Any) -> bool:
    """Whether a product of these is not too large to go on with, as `"x" * 10000000000` is."""
    sizes = [len(cast("str", one)) for one in values if isinstance(one, str | list)]
    numbers = [abs(one) for one in values if isinstance(one, int)]
    most = _MOST_LETTERS if sizes else 10**30
    return all(one <= most for one in (*sizes, *numbers))


def _either(any_of: bool, values: Sequence[Any]) -> Any:
    """`or` and `and` of values, some of which may be unknown."""
    for value in values:
        if isinstance(value, Unknown):
            return UNKNOWN
        if bool(value) is any_of:
            return value
    return values[-1]


def _getattr(args: Sequence[Any]) -> Any:
    owner, name, *default = args
    if isinstance(owner, Made):
        return owner.fields.get(name, default[0] if default else UNKNOWN)
    return UNKNOWN


_BUILT_IN: Final[Mapping[str, Callable[[Sequence[Any]], Any]]] = {
    "getattr": _getattr,
    "hasattr": lambda args: isinstance(args[0], Made) and args[1] in args[0].fields,
    "isinstance": lambda args: UNKNOWN if _open(args[0]) else isinstance(args[0], str),
    "len": lambda args: len(args[0]),
    "list": lambda args: list(args[0]),
    "cast": lambda args: args[-1],
    "deepcopy": lambda args: args[0],
}


def flat_of(made: Made, file: str) -> Iterator[tuple[str, Child]]:
    """Known fields by dotted path, and the class of each object as `_class`."""
    for name, value in made.fields.items():
        place = made.places.get(name, Origin(file, 1, 1, "", 1))
        if isinstance(value, Made):
            if value.name:
                yield f"{name}._class", Child(place, Leaf(value.name, place))
            yield from ((f"{name}.{key}", child) for key, child in flat_of(value, file))
        elif not isinstance(value, Unknown):
            yield name, Child(place, _node(value, place))


def _node(value: Any, place: Origin) -> Node:
    if isinstance(value, list):
        return Items(tuple(_node(one, place) for one in cast("list[Any]", value)), place)
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return Branch({str(key): Child(place, _node(one, place)) for key, one in items}, place)
    if isinstance(value, Made):
        return Leaf(value.name, place)
    if value is None or isinstance(value, str | int | float | bool):
        return Leaf(value, place)
    return Leaf(None, place)


RECIPE: Final = "RECIPE"
"""The variable that says which function of a file is meant."""


def recipe_of(source: Source, calls: Mapping[str, Call], ending: str) -> tuple[Made, list[str]]:
    """What the function of a file makes that `RECIPE` names, or the only one whose name ends so;
    and what is unknown of it. Raises `UsageError` where there is no such function."""
    path = (source.folder or Path()) / Path(source.file).name
    module = module_of_text(source.text, path)
    if source.folder is None:  # whatever lies here is not what it imports
        module = replace(module, imports={})
    known = [name for name in module.functions if name.endswith(ending) and name[0] != "_"]
    name = source.defined.get(RECIPE) or (known[0] if len(known) == 1 else "")
    if name not in module.functions:
        message = f"`{source.file}` has no recipe `{name}`" if name else "the file has many recipes"
        fix = hint(name, known, f"--define {RECIPE}=... with one of") if known else ""
        raise UsageError([Problem("TW011", "--define", message, fix)])
    reading = Reading(calls)
    made = reading.call(module, name, (), {})
    if not isinstance(made, Made):
        message = f"`{name}` of `{source.file}` makes no configuration"
        raise UsageError([Problem("TW041", "", message, "name another function")])
    return made, reading.remarks
