"""Compiles the GPU's kernels without a GPU, as their launchers ask for them.

`python -m tests.reference.kernels.ahead_of_time 90` prints a line of JSON for each, with `--hot`
for one configuration of each kernel. With `--page docs/gpu-kernels.md` all architectures become
that page. A launcher runs on the meta device; a recorder stands in for its kernel, and notes types,
constants and options. As at run time, pointers count as aligned to 16 bytes, and sizes that 16
divides are known to be.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, Final

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from reference.kernels import attention_triton, fp8_triton, swiglu_triton

BINARIES: Final = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
ARCHITECTURES: Final = {80: "A100", 90: "H100, H800, H200, H20", 100: "B200"}
SHARED: Final = {80: 166_912, 90: 232_448, 100: 232_448}
"""Bytes of shared memory of a block (CUDA C++ programming guide, technical specifications)."""
REGISTERS: Final = 255
"""Of a thread; the same source."""
TENSOR: Final = {80: "mma.sync", 90: "wgmma", 100: "tcgen05.mma"}
"""Each architecture's own matrix instruction."""
WHOLE: Final = 16
"""Bytes of a thread's widest access."""
FP8_FROM: Final = 89
"""Older GPUs do not convert to E4M3: there the PyTorch path runs (`reference.kernels.fp8`)."""
TYPES: Final = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4nv",
}


@dataclass(frozen=True)
class Launch:
    """What a launcher asked for."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, int]


class Recorder:
    """Stands in for a kernel."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.launches: list[Launch] = []

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    def _launch(self, *arguments: Any, **options: int) -> None:
        self.launches.append(Launch(self.kernel, arguments, options))


@contextmanager
def recorded(module: ModuleType, name: str) -> Iterator[Recorder]:
    """The recorder in the kernel's place."""
    kernel = getattr(module, name)
    recorder = Recorder(kernel)
    setattr(module, name, recorder)
    try:
        yield recorder
    finally:
        setattr(module, name, kernel)


@dataclass(frozen=True)
class Case:
    """A kernel in one configuration; `tensor`: it multiplies matrices; `aligned`: the sizes let a
    thread move 16 bytes at a time."""

    kernel: str
    configuration: str
    module: ModuleType
    name: str
    launch: Callable[[], object]
    tensor: bool = False
    aligned: bool = True
    fp8: bool = False


def _meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _logits(width: int, tokens: int = 4096, *, bounded: bool = True, half: bool = False) -> Case:
    dtype = torch.float16 if half else torch.bfloat16

    def launch() -> object:
        q = _meta(1, tokens, 64, width, dtype=dtype)
        lse = _meta(1, 64, tokens, dtype=torch.float32) if bounded else None
        return attention_triton.max_logit(q, q, 0.1, lse, 100.0)

    words = (
        f"{TYPES[dtype]}, heads of {width}, {tokens:,} tokens, {'bounded' if bounded else 'exact'}"
    )
    return Case("largest logit", words, attention_triton, "_max_logit", launch, tensor=True)


def _swiglu(width: int, dtype: torch.dtype, *, weighted: bool, back: bool) -> Case:
    def launch() -> object:
        gate_up, weight = _meta(8, 2 * width, dtype=dtype), None
        if weighted:
            weight = _meta(8, dtype=dtype)
        if back:
            return swiglu_triton.backward(_meta(8, width, dtype=dtype), gate_up, weight)
        return swiglu_triton.forward(gate_up, weight)

    words = f"{TYPES[dtype]}, width {width:,}, {'weighted' if weighted else 'plain'}"
    kernel, name = ("SwiGLU backward", "_backward") if back else ("SwiGLU", "_forward")
    return Case(kernel, words, swiglu_triton, name, launch, aligned=width % 16 == 0)


def _quantize(width: int, dtype: torch.dtype) -> Case:
    words = f"{TYPES[dtype]}, width {width:,}"

    def launch() -> object:
        return fp8_triton.quantize(_meta(64, width, dtype=dtype))

    aligned = width % 16 == 0
    return Case("to FP8", words, fp8_triton, "_quantize", launch, aligned=aligned, fp8=True)


def _dequantize(width: int, dtype: torch.dtype) -> Case:
    def launch() -> object:
        values = _meta(64, width, dtype=torch.float8_e4m3fn)
        return fp8_triton.dequantize(
            values, _meta(64, -(-width // 128), dtype=torch.float32), dtype
        )

    words, aligned = f"{TYPES[dtype]}, width {width:,}", width % 16 == 0
    return Case("from FP8", words, fp8_triton, "_dequantize", launch, aligned=aligned, fp8=True)


BOTH: Final = (torch.bfloat16, torch.float32)
CASES: Final = (
    *(_logits(width) for width in (192, 128, 64, 48, 32)),
    _logits(192, bounded=False),
    _logits(192, 1000),
    _logits(192, half=True),
    *(
        _swiglu(2048, dtype, weighted=weighted, back=back)
        for back in (False, True)
        for dtype in BOTH
        for weighted in (True, False)
    ),
    *(
        _swiglu(width, torch.bfloat16, weighted=True, back=back)
        for width in (512, 1000)
        for back in (False, True)
    ),
    *(make(7168, dtype) for make in (_quantize, _dequantize) for dtype in BOTH),
    *(make(1000, BOTH[0]) for make in (_quantize, _dequantize)),
)


HOT: Final = tuple({case.kernel: case for case in reversed(CASES)}.values())
"""The first configuration of each kernel: Kimi K2's."""


@dataclass(frozen=True)
class Compiled:
    """What a kernel takes of a multiprocessor: bytes of shared memory of a block, registers of a
    thread, bytes of local memory (spills and stack), the matrix instruction, and the bytes that a
    thread moves at a time at most."""

    kernel: str
    configuration: str
    registers: int
    shared: int
    spills: int
    tensor: str
    access: int
    warps: int

    def row(self) -> str:
        """Of the page's table."""
        numbers = f"`{self.registers}` | `{self.shared:,}` | `{self.spills}`"
        tensor = f"`{self.tensor}`" if self.tensor else ""
        head = f"| {self.kernel} | `{self.configuration}` | {numbers} | {tensor} |"
        return f"{head} `{self.access}` | `{self.warps}` |"


def compiled(case: Case, capability: int) -> Compiled:
    """A case for an architecture."""
    with recorded(case.module, case.name) as recorder:
        case.launch()
    (launch,) = recorder.launches
    source = _source(launch)
    target = GPUTarget("cuda", capability, 32)
    kernel: Any = triton.compile(source, target=target, options=launch.options)
    used, ptx = _resources(kernel.asm["cubin"]), kernel.asm["ptx"]
    tensor = [one for one in ("wgmma", "tcgen05.mma", "mma.sync") if one in ptx]
    return Compiled(
        case.kernel,
        case.configuration,
        used["REG"],
        kernel.metadata.shared,
        used["LOCAL"] + used["STACK"],
        next(iter(tensor), ""),
        _widest(ptx),
        kernel.metadata.num_warps,
    )


def _source(launch: Launch) -> ASTSource:
    """The kernel with the types, constants and alignments of a launch, as Triton specialises it."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[object]]] = {}
    for place, (name, value) in enumerate(
        zip(launch.kernel.arg_names, launch.arguments, strict=True)
    ):
        constant = launch.kernel.params[place].is_constexpr
        if constant or (isinstance(value, int) and value == 1):
            signature[name], constants[place,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = f"*{TYPES[value.dtype]}"
            attributes[place,] = [["tt.divisibility", WHOLE]]
        elif isinstance(value, int):
            signature[name] = "i32"
            if value % WHOLE == 0:
                attributes[place,] = [["tt.divisibility", WHOLE]]
        else:
            signature[name] = "fp32"
    return ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=attributes)


def _resources(cubin: bytes) -> dict[str, int]:
    """What `cuobjdump` says of a kernel."""
    with TemporaryDirectory() as folder:
        binary = Path(folder) / "kernel.cubin"
        binary.write_bytes(cubin)
        words = [str(BINARIES / "cuobjdump"), "-res-usage", str(binary)]
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}


def _widest(ptx: str) -> int:
    """Bytes of the widest access to global memory."""
    plain = re.findall(r"(?:ld|st)\.global(?:\.[a-z_:0-9]+)*?(?:\.v(\d))?\.b(\d+)", ptx)
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global.*?, (0x[0-9a-f]+|\d+)", ptx)
    sizes = [int(count or 1) * int(bits) // 8 for count, bits in plain]
    return max([*sizes, *(int(size, 0) for size in copies)], default=0)


def of(capability: int, cases: Iterable[Case] = CASES) -> list[Compiled]:
    """The cases that the architecture runs. Raises `AssertionError` for a limit that is missed."""
    run = [case for case in cases if capability >= FP8_FROM or not case.fp8]
    found = [compiled(case, capability) for case in run]
    for case, one in zip(run, found, strict=True):
        assert one.registers <= REGISTERS, one
        assert one.shared <= SHARED[capability], one
        assert one.spills == 0, one
        assert one.tensor == (TENSOR[capability] if case.tensor else ""), one
        assert (one.access == WHOLE) == case.aligned, one
    return found


def page() -> str:
    """The table of all architectures."""
    lines = [_HEAD.format(triton=triton.__version__)]
    for capability, parts in ARCHITECTURES.items():
        lines += [f"\n## sm_{capability}: {parts}\n", _limits(capability), _COLUMNS]
        lines += [one.row() for one in of(capability)]
    return "\n".join(lines) + "\n"


def _limits(capability: int) -> str:
    return (
        f"Limits: `{REGISTERS}` registers of a thread, `{SHARED[capability]:,}` bytes of shared"
        f" memory of a block. Its matrix instruction is `{TENSOR[capability]}`.\n"
    )


_COLUMNS: Final = """\
| Kernel | Configuration | Registers | Shared memory, bytes | Spills, bytes | \
Matrix instruction | Bytes per access | Warps |
|---|---|---|---|---|---|---|---|"""
_HEAD: Final = """\
# What do the GPU kernels take of a multiprocessor?

Every Triton kernel of the reference compiles for sm_80, sm_90 and sm_100. All stay within the
limits, none spills a register. The largest logit uses each architecture's own matrix instruction.

This table needs no GPU. Triton {triton} and its `ptxas` made it:
`python -m tests.reference.kernels.ahead_of_time --page docs/gpu-kernels.md`. A configuration is
what a launcher asks for, recorded while it runs on the meta device.
`tests/reference/kernels/test_ahead_of_time.py` compiles them again and holds the limits.

- Spills are bytes of local memory, the stack included.
- Bytes per access are those of a thread's widest load or store; 16 is the most. Widths that 16
  does not divide get narrower accesses, as `1,000` shows. No catalog model has such a width.
- `bounded` compares each block of rows with the log-sum-exp first, and multiplies only where a
  head may be clipped; `exact` multiplies always.
- FP8 has no rows on sm_80: the GPU does not convert to E4M3, so PyTorch's path runs there.
- Attention, products and collectives are libraries' kernels, and are not listed."""


if __name__ == "__main__":
    if sys.argv[1] == "--page":
        Path(sys.argv[2]).write_text(page(), encoding="utf-8")
    else:
        chosen = HOT if sys.argv[2:] == ["--hot"] else CASES
        for each in of(int(sys.argv[1]), chosen):
            print(json.dumps(asdict(each) | {"row": each.row()}), flush=True)
