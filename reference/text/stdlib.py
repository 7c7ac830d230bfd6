"""The corpus that every machine has: the standard library of the running Python, its source with
its documentation strings, and the language reference that it carries (`pydoc_data`).

Left out is what differs between installations of one version: installed packages, the test suites
(which distributions package apart, and which are half of the text), and modules that the build
writes (`_sysconfigdata...`). So two machines with one version of CPython read the same corpus, as
far as nobody patched its modules. Left out too are `encodings`, tables that a generator wrote, most
of them near copies of each other; and every file that is no `.py`.
"""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from reference.text.files import decoded

_PACKAGES = {"site-packages", "dist-packages"}
_TESTS = {"test", "tests", "idle_test"}
_LEFT_OUT = _PACKAGES | _TESTS | {"encodings", "__pycache__"}
_OF_ONE_MACHINE = ("_sysconfigdata", "sitecustomize", "usercustomize")


def title() -> str:
    """Which standard library: `the standard library of CPython 3.11.7`."""
    return f"the standard library of {platform.python_implementation()} {platform.python_version()}"


def texts() -> Iterator[tuple[str, str | None]]:
    """Name (path below the library) and text of every module; None: it is not UTF-8."""
    root = Path(sysconfig.get_path("stdlib"))
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in _LEFT_OUT]
        for name in names:
            if name.endswith(".py") and not name.startswith(_OF_ONE_MACHINE):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), decoded(path.read_bytes())
