"""The machine code: where it is kept, and how it gets into the process.

numba takes 0.3 s to import and seconds to compile, so it runs once, in a process of its own, and
leaves an object file beside Python's own bytecode. llvmlite alone loads that in 0.05 s. Where there
is no such file yet, or no numba to make it, Python answers.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from time import time
from typing import Any, Final

from twin.loading.kept_trees import folders

KERNELS: Final = {"player": "play", "turns": "walk"}
"""Modules that are compiled, and the function of each that is called."""
PATIENCE: Final = 60.0
"""Seconds after which whoever began to compile is taken to have failed."""

Function = Callable[[Any, Any, Any], int]
"""Takes three tables of arrays, says how far it came."""


@dataclass(frozen=True, slots=True)
class Code:
    """Code that runs, together with what owns its memory: a thread may still be in it when another
    one has loaded its own."""

    play: Function
    """Events of a graph (`twin.compiled.player`)."""
    walk: Function
    """Turns of a schedule (`twin.compiled.turns`)."""
    engine: Any


@dataclass(slots=True)
class _Process:
    """What this process knows."""

    code: Code | None = None
    asked: bool = False
    """Whether it has had the code made."""
    refused: set[Path] = field(default_factory=set[Path])
    """Files that could not be loaded."""
    loading: Lock = field(default_factory=Lock)
    """Held by the thread that loads the code, or has it made."""


_PROCESS: Final = _Process()


def code() -> Code | None:
    """The code, where it is at hand; else it will be, if it can be made here."""
    if _PROCESS.code is None:
        with _PROCESS.loading:
            if _PROCESS.code is None:
                _load_or_have_made()
    return _PROCESS.code


def _load_or_have_made() -> None:
    path = kept()
    if path is not None and path not in _PROCESS.refused:
        try:
            _PROCESS.code = _loaded(opened(path.read_bytes()))
        except (ImportError, OSError, RuntimeError, ValueError):
            _PROCESS.refused.add(path)
    elif not _PROCESS.asked:
        _PROCESS.asked = True
        _have_made()


def kept() -> Path | None:
    """The object file of the present source, if there is one."""
    return next((path for path in places() if path.exists()), None)


@cache
def places() -> tuple[Path, ...]:
    """Where the object file of the present source may be: beside the bytecode, or in the user's
    cache."""
    here = Path(__file__)
    try:
        text = b"".join(here.with_name(f"{name}.py").read_bytes() for name in KERNELS)
    except OSError:
        return ()
    build = f"{sys.platform} {platform.machine()} {KERNELS}".encode()
    name = f"kernel.{hashlib.sha256(text + build).hexdigest()[:16]}.o"
    return tuple(folder / name for folder in folders(__file__))


def sealed(data: bytes) -> bytes:
    """An object file behind its checksum: LLVM does not survive a damaged one."""
    return hashlib.sha256(data).digest() + data


def opened(stored: bytes) -> bytes:
    """The object file. Raises ValueError for a damaged one."""
    data = stored[hashlib.sha256().digest_size :]
    if sealed(data) != stored:
        raise ValueError("damaged object file")
    return data


def _loaded(data: bytes) -> Code:
    """The code of an object file."""
    llvm: Any = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    play, walk = (_called(engine.get_function_address(symbol(one))) for one in KERNELS.values())
    return Code(play, walk, engine)


def symbol(function: str) -> str:
    """The name of a function in the object file."""
    return f"twin_{function}"


def _called(address: int) -> Function:
    """The function at an address, by numba's convention: the answer's address, that of an
    exception, then the arguments."""
    inner = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)(address)

    def call(narrow: Any, wide: Any, floats: Any) -> int:
        answer, exception = ctypes.c_int64(), ctypes.c_void_p()
        inner(ctypes.byref(answer), ctypes.byref(exception), narrow, wide, floats)
        return answer.value

    return call


def _have_made() -> None:
    """Let a process in the background make the code, unless one does."""
    if not places() or find_spec("numba") is None or being_made():
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "twin.compiled.build"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # nobody waits for it


def being_made() -> bool:
    """Whether some process is at it."""
    return any(_is_fresh(lock(path)) for path in places())


def lock(path: Path) -> Path:
    """The file that says that an object file is being made."""
    return path.with_suffix(".lock")


def _is_fresh(path: Path) -> bool:
    try:
        return time() - path.stat().st_mtime < PATIENCE
    except OSError:
        return False
