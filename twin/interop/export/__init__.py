"""Runs as files for other tools and other people, one module per format: `twin export SCENARIO
--format FORMAT --output PATH`.

A new format is one new module beside `base`: its name is the format's, and it fulfils
`twin.interop.export.base.Format`. None is imported before it is asked for.
"""

from __future__ import annotations

import pkgutil

__all__ = ["formats"]


def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    return tuple(sorted(one.name for one in pkgutil.iter_modules(__path__) if one.name != "base"))
