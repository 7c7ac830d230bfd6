"""Compiles the GPU's kernels for an architecture without a GPU, and prints a line of JSON for each:
`python -m tests.reference.kernels.ahead_of_time 90`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from reference.kernels import attention_triton, fp8_triton, swiglu_triton

BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TILES = {"ROWS": 32, "TILE": 128}
LOGITS = {"ROWS": 128, "KEYS": 128, "COLUMNS": 64, "WIDEN": False}
KERNELS: dict[str, tuple[Any, dict[str, str], dict[str, Any], int]] = {
    **{
        f"max_logit_{Q}": (
            attention_triton._max_logit,
            {"q_ptr": "*bf16", "k_ptr": "*bf16", "max_ptr": "*fp32", "scale": "fp32"},
            {"Q": Q, **LOGITS},
            8,
        )
        for Q in (128, 192)
    },
    "swiglu": (
        swiglu_triton._forward,
        {"gate_up_ptr": "*bf16", "weight_ptr": "*fp32", "out_ptr": "*bf16"},
        {"WEIGHTED": True, "COLUMNS": 1024},
        4,
    ),
    "swiglu_backward": (
        swiglu_triton._backward,
        {
            "dout_ptr": "*bf16",
            "gate_up_ptr": "*bf16",
            "weight_ptr": "*fp32",
            "dgate_up_ptr": "*bf16",
            "dweight_ptr": "*fp32",
        },
        {"WEIGHTED": True, "COLUMNS": 1024},
        4,
    ),
    "fp8_quantize": (
        fp8_triton._quantize,
        {"x_ptr": "*bf16", "values_ptr": "*fp8e4nv", "scales_ptr": "*fp32"},
        TILES,
        4,
    ),
    "fp8_dequantize": (
        fp8_triton._dequantize,
        {"values_ptr": "*fp8e4nv", "scales_ptr": "*fp32", "out_ptr": "*bf16"},
        TILES,
        4,
    ),
}
"""Each kernel with the types of its pointers, its constants and its warps; all else is a size."""


def compiled(name: str, capability: int) -> dict[str, Any]:
    """What a kernel takes of a multiprocessor."""
    function, pointers, constants, warps = KERNELS[name]
    names = function.arg_names
    signature = {one: pointers.get(one, "i32") for one in names}
    signature |= dict.fromkeys(constants, "constexpr")
    places = {(names.index(one),): value for one, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=places)
    target = GPUTarget("cuda", capability, 32)
    kernel: Any = triton.compile(source, target=target, options={"num_warps": warps})
    with TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(kernel.asm["cubin"])
        words = [str(BINARIES / "cuobjdump"), "-res-usage", str(binary)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    used = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}
    tensor = [one for one in ("wgmma", "tcgen05.mma", "mma.sync") if one in kernel.asm["ptx"]]
    return {"name": name, "shared": kernel.metadata.shared, "tensor": tensor, **used}


if __name__ == "__main__":
    for each in KERNELS:
        architecture = int(sys.argv[1])
        if architecture >= 89 or "fp8" not in each:  # older GPUs have no FP8
            print(json.dumps(compiled(each, architecture)), flush=True)
