"""Answers kept for the next layout: what the layouts of a search share is worked out once.

For functions of values only, whose answers nobody changes. Sections of a scenario are such values:
they are frozen, so they have a hash, which type checkers do not see on pydantic's models.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of functions that keeps as many of their last answers."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return cast("Callable[P, R]", lru_cache(maxsize=most)(function))

    return decorate
