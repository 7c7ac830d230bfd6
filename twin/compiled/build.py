"""`python -m twin.compiled.build`: compile the kernels, once, into an object file.

The code is for any processor of this kind, so that a folder can be shared by machines. It refers to
nothing outside of itself: neither to Python nor to numba.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from twin.compiled.machine import KERNELS, kept, lock, places, sealed, symbol


def build() -> Path | None:
    """The object file; made where there is none yet, in the first folder that can be written."""
    path = kept()
    if path is not None:
        return path
    for path in places():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock(path).write_text(str(os.getpid()))
        except OSError:
            continue
        try:
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(sealed(compiled()))
            unfinished.replace(path)
        finally:
            lock(path).unlink(missing_ok=True)
        return path
    return None


def compiled() -> bytes:
    """The kernels as an object file."""
    llvm: Any = import_module("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly("")
    for name, entry in KERNELS.items():
        module.link_in(_alone(llvm, _fresh(name), entry))
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="pic", codemodel="jitdefault"
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


def _alone(llvm: Any, kernel: ModuleType, entry: str) -> Any:
    """A kernel in LLVM's language, of which nothing but its entry is seen."""
    text, made = _assembly(kernel, entry)
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if function.name == made:
            function.name, function.linkage = symbol(entry), "external"
        elif not function.is_declaration:
            function.linkage = "internal"
    return module


def _fresh(name: str) -> ModuleType:
    """A kernel as a module of its own, whose functions can be replaced by compiled ones."""
    spec = spec_from_file_location(f"twin_{name}", Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"twin.compiled.{name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _assembly(kernel: ModuleType, entry: str) -> tuple[str, str]:
    """A kernel in numba's words, and what its entry is called there. It is optimised once, as a
    whole, not function by function."""
    os.environ["NUMBA_OPT"] = "0"
    numba: Any = import_module("numba")
    types: Any = import_module("numba.types")
    options = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    for name, function in vars(kernel).items():
        if isinstance(function, FunctionType) and name != entry:
            setattr(kernel, name, numba.njit(**options)(function))
    kinds = types.int32, types.int64, types.float64
    tables = [types.CPointer(types.CPointer(kind)) for kind in kinds]
    made = numba.njit(types.int64(*tables), **options)(vars(kernel)[entry])
    (found,) = made.overloads.values()
    return found.library.get_llvm_str(), found.fndesc.llvm_func_name


if __name__ == "__main__":
    os.nice(10)
    build()
