"""Kinds of networks between nodes, one module each: where NICs are wired to, and how many switches
a path crosses.

`member(kind)` gives the one instance of a kind; `kinds()` lists them. A new kind is one new module
in this package.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from twin.network.topology.base import Topology

__all__ = ["Topology", "kinds", "member"]


def _members() -> Mapping[str, Topology]:
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{module}")
    final = [cls for cls in Topology.__subclasses__() if getattr(cls, "__final__", False)]
    return MappingProxyType({cls.kind: cls() for cls in final})


_MEMBERS: Mapping[str, Topology] = _members()


def kinds() -> tuple[str, ...]:
    """Every topology kind that a fabric may name."""
    return tuple(_MEMBERS)


def member(kind: str) -> Topology:
    """The topology of this kind.

    Raises:
        KeyError: no module of this package defines the kind; `kinds()` lists those that exist.
    """
    return _MEMBERS[kind]
