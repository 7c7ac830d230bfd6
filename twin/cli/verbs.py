"""The verbs of the command, from `verbs.toml`: what each is called with, and the function that
answers, which is imported when the verb runs."""

from __future__ import annotations

import gc
import sys
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from twin.cli.output import Output
from twin.errors import Problem, TwinError

_TYPES: Final[Mapping[str, Any]] = {
    "text": str,
    "texts": list[str],
    "path": Path,
    "paths": list[Path],
    "int": int,
    "float": float,
    "bool": bool,
}


@cache
def verbs() -> Mapping[str, Mapping[str, Any]]:
    """Every verb by name: `call`, `help` and `parameters`."""
    told = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    shared = told.pop("shared")
    for verb in told.values():
        parameters = verb["parameters"].items()
        verb["parameters"] = {k: shared[k] if v == "shared" else v for k, v in parameters}
    return told


def register(app: typer.Typer, name: str) -> None:
    """Add one verb to an application."""
    app.command(name, cls=_Command, help=verbs()[name]["help"])(_callback(name))


class _Command(TyperCommand):
    """A verb whose refusals begin with what is wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


def _callback(name: str) -> Callable[..., None]:
    """A function with the signature that typer reads."""
    verb = verbs()[name]

    def callback(**values: Any) -> None:
        output = Output(values.pop("as_json"), values.pop("quiet"), name.partition(" ")[0])
        module, _, function = verb["call"].partition(":")
        answer = getattr(_imported(f"{__package__}.{module}"), function)
        told = {key: _plain(value, verb["parameters"][key]) for key, value in values.items()}
        raise typer.Exit(answer(output=output, **told) or 0)

    parameters = [_parameter(key, told) for key, told in verb["parameters"].items()]
    callback.__signature__ = Signature(parameters)
    callback.__annotations__ = {one.name: one.annotation for one in parameters}
    return callback


def _imported(module: str) -> ModuleType:
    """A module; at its import nobody looks for garbage, a tenth of the time: what it makes stays,
    and is never looked at again."""
    if module in sys.modules or not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def naming_options(verb: str) -> Generator[None]:
    """Problems with a field of a question name the option that says it."""
    parameters = verbs()[verb]["parameters"]

    def named(one: Problem) -> Problem:
        told = parameters.get(one.path)
        if one.origin is not None or told is None:
            return one
        return replace(one, path=str(told.get("option", told["metavar"])).split()[0])

    try:
        yield
    except TwinError as error:
        raise type(error)(named(one) for one in error.problems) from None


def _parameter(name: str, told: Mapping[str, Any]) -> Parameter:
    """One parameter; without `option` it is an argument."""
    settings = {key: told[key] for key in ("metavar", "help", "min", "max") if key in told}
    kind: Any = _TYPES[told.get("type", "text")]
    default = told.get("default", False if kind is bool else None)
    if choices := told.get("choices"):
        kind = StrEnum(name, list[str](choices))
        default = default and kind(default)
    flags = told.get("option", "").split()
    info = typer.Option(*flags, **settings) if flags else typer.Argument(**settings)
    required = told.get("required", False)
    annotation = kind if required or default is not None else kind | None
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if required else default,
        annotation=Annotated[annotation, info],
    )


def _plain(value: Any, told: Mapping[str, Any]) -> Any:
    """A value without typer's wrapping: a list where there is none, and of a choice its text, or
    that of the choice which means the same."""
    if value is None and told.get("type") in ("texts", "paths"):
        return []
    return (
        told.get("same", {}).get(value.value, value.value) if isinstance(value, StrEnum) else value
    )
