"""Runs as files for other tools and other people, one module per format: `twin export SCENARIO
--format FORMAT --output PATH`.

A new format is one new module beside `base`, which fulfils `twin.interop.export.base.Format`. Its
name is the format's. Formats are imported when they are used.
"""

from __future__ import annotations

import pkgutil

MODULES = {"pace": "throttle_profile"}
"""Modules that are not named after their format."""


def formats() -> tuple[str, ...]:
    """The names of all formats, sorted."""
    names = {module: name for name, module in MODULES.items()}
    found = (one.name for one in pkgutil.iter_modules(__path__) if one.name != "base")
    return tuple(sorted(names.get(module, module) for module in found))


LAUNCHES = ("bridge", "megatron", "torchtitan")
"""Formats with which other programs are launched: of a plan, and nothing is simulated."""
