"""The loops of `twin.explore.schedules.kernel` as machine code, made by numba when first asked for
and kept for the next process; plain Python where numba is not there."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from twin.explore.schedules import kernel as plain
from twin.loading.kept_trees import folders

_NAME: Final = "twin.explore.schedules.compiled_kernel"


@cache
def kernel() -> Any:
    """The module, its functions compiled."""
    spec = spec_from_file_location(_NAME, Path(plain.__file__))
    if find_spec("numba") is None or spec is None or spec.loader is None:
        return plain
    found = module_from_spec(spec)
    sys.modules[_NAME] = found
    spec.loader.exec_module(found)
    numba: Any = import_module("numba")
    numba.config.CACHE_DIR = str(folders(__file__)[-1])
    for name, function in vars(found).items():
        if isinstance(function, FunctionType) and function.__module__ == _NAME:
            setattr(found, name, numba.njit(cache=True, error_model="numpy")(function))
    return found
