"""What reads files with measurements, one module for each format. `sources()` lists them."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source

__all__ = ["Findings", "Measurement", "Source", "sources"]


@cache
def sources() -> tuple[Source, ...]:
    """All of them, in the order of their modules' names."""
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{module}")
    final = [cls for cls in Source.__subclasses__() if getattr(cls, "__final__", False)]
    return tuple(cls() for cls in final)
