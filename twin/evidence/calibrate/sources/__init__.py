"""Formats of files with measurements, one module each. `formats()` lists them; a new format is one
new module in this package."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from twin.evidence.calibrate.sources.base import Findings, Measurement, Source

__all__ = ["Findings", "Measurement", "Source", "formats"]


@cache
def formats() -> tuple[Source, ...]:
    """One reader per format, in the order of their modules' names."""
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        import_module(f"{__name__}.{module}")
    final = [cls for cls in Source.__subclasses__() if getattr(cls, "__final__", False)]
    return tuple(cls() for cls in final)
