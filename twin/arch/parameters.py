"""The parameters of a block as a table, from which every count is made: totals, shards, optimizers.

One row is one tensor of the released checkpoint, or `count` like it (experts).

Collectives of tensor parallelism at the edges of a region that is cut over tensor ranks.

Megatron-LM: a column-cut GEMM enters the region, a row-cut GEMM leaves it. Without sequence
parallelism the way out all-reduces forward and the way in all-reduces backward (Shoeybi et al.
2019, arXiv:1909.08053, section 3). With it, the way in all-gathers and the way out reduce-scatters,
each the other's mirror backward; and since only a slice of the region's input is kept, backward
gathers it once more for the weight's gradient (Korthikanti et al. 2022, arXiv:2205.05198, section
4.2.2). What enters products in FP8 is cast before it is gathered (Transformer Engine); so is the
gradient of what leaves them, where a tensor has one scale (`grad_output_preprocess`). All else
travels in bf16. Not here: the all-reduce over tensor ranks, once per step, of
the gradients of weights that sequence parallelism feeds with slices (norms, biases, routers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from twin.arch.fp4 import SIDES
from twin.arch.kernels import ELEMENT, VALUE
from twin.arch.ops import Bucket, CollectiveKind, Exchange, Matrices, Precision, Shape, Weights


def enter(
    name: str, size: float, shape: Shape, precision: Precision = "bf16"
) -> tuple[Exchange, ...]:
    """Before column-cut GEMMs whose input, whole, has `size` bytes in bf16."""
    if shape.tensor == 1:
        return ()
    if shape.sequence_parallel:
        sent = _sent(size, precision)
        return (
            Exchange(name, "tensor", sent, "all_gather", "reduce_scatter", backward_bytes=size),
        )
    return (Exchange(name, "tensor", size, None, "all_reduce"),)


def regather(
    name: str, size: float, shape: Shape, precision: Precision = "bf16"
) -> tuple[Exchange, ...]:
    """After those GEMMs in forward order, so before their gradients: the input gathered again."""
    if shape.tensor == 1 or not shape.sequence_parallel:
        return ()
    return (Exchange(name, "tensor", _sent(size, precision), None, "all_gather"),)


def leave(name: str, size: float, shape: Shape) -> tuple[Exchange, ...]:
    """After a row-cut GEMM whose output, whole, has `size` bytes."""
    if shape.tensor == 1:
        return ()
    if shape.sequence_parallel:
        sides = SIDES if shape.short else 1  # one for the input's gradient, one for the weight's
        gathered = sides * _sent(size, shape.gathered) if shape.per_tensor else size
        kinds: tuple[CollectiveKind, CollectiveKind] = ("reduce_scatter", "all_gather")
        return (Exchange(name, "tensor", size, *kinds, backward_bytes=gathered),)
    return (Exchange(name, "tensor", size, "all_reduce", None),)


def _sent(size: float, precision: Precision) -> float:
    return size if precision == "bf16" else size * VALUE[precision] / ELEMENT


Part = Literal[
    "embedding",
    "positions",
    "attention",
    "dense_ffn",
    "router",
    "shared_experts",
    "routed_experts",
    "mtp_projection",
    "norms",
    "head",
    "vision",
]
Cut = Literal["replicated", "rows", "columns", "expert_rows", "expert_columns", "expert_whole"]
"""Over which ranks: tensor ranks cut a tensor by `rows` or by `columns`, expert ranks take whole
ones of its `count`, and expert-tensor ranks cut these by `rows`, by `columns` or not at all."""
Role = Literal["matrix", "table", "vector", "buffer"]
"""`matrix`: a GEMM's weight that Muon takes; `table`: vocabulary or positions by hidden, left to
AdamW though two-dimensional (as in Moonlight, arXiv:2502.16982); `vector`: norms and biases;
`buffer`: changed by a rule, without gradient (expert-bias)."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """`count` tensors of `rows` x `columns` each, and how they are cut."""

    name: str
    part: Part
    role: Role
    rows: int
    columns: int = 1
    count: int = 1
    cut: Cut = "replicated"

    @property
    def elements(self) -> int:
        """Numbers in all `count` tensors."""
        return self.rows * self.columns * self.count


def matrix(name: str, part: Part, size: tuple[int, int], cut: Cut, count: int = 1) -> Parameter:
    """A GEMM's weight, `size` = (inputs, outputs)."""
    return Parameter(name, part, "matrix", *size, count=count, cut=cut)


def vector(name: str, part: Part, width: int, cut: Cut = "replicated") -> Parameter:
    """A bias or a gain."""
    return Parameter(name, part, "vector", width, cut=cut)


def norm_gains(
    name: str, kind: Literal["rmsnorm", "layernorm"], width: int, part: Part = "norms"
) -> tuple[Parameter, ...]:
    """The gain of a norm; a LayerNorm has a bias beside it."""
    gain = vector(f"{name}.gain", part, width)
    return (gain,) if kind == "rmsnorm" else (gain, vector(f"{name}.bias", part, width))


def on_rank(table: Iterable[Parameter], shape: Shape) -> tuple[Parameter, ...]:
    """What one rank holds of each parameter."""
    return tuple(_cut(parameter, shape) for parameter in table)


def weights(table: Iterable[Parameter]) -> Weights:
    """The counts of a table by how its parameters shard."""
    total = Weights()
    for parameter in table:
        elements = parameter.elements
        matrices = elements if parameter.role == "matrix" else 0
        match bucket(parameter):
            case "replicated":
                buffers = elements if parameter.role == "buffer" else 0
                total += Weights(replicated=elements, replicated_matrices=matrices, buffers=buffers)
            case "tensor":
                total += Weights(tensor=elements, tensor_matrices=matrices)
            case "expert":
                total += Weights(expert=elements, expert_matrices=matrices)
    return total


def matrices(table: Iterable[Parameter]) -> tuple[Matrices, ...]:
    """The shapes of a table's matrices."""
    return tuple(
        Matrices(bucket(parameter), parameter.count, parameter.rows, parameter.columns)
        for parameter in table
        if parameter.role == "matrix"
    )


def bucket(parameter: Parameter) -> Bucket:
    """The ranks over which a parameter shards."""
    match parameter.cut:
        case "replicated":
            return "replicated"
        case "rows" | "columns":
            return "tensor"
        case "expert_rows" | "expert_columns" | "expert_whole":
            return "expert"


def _cut(parameter: Parameter, shape: Shape) -> Parameter:
    match parameter.cut:
        case "replicated":
            return parameter
        case "rows":
            return replace(parameter, rows=parameter.rows // shape.tensor)
        case "columns":
            return replace(parameter, columns=parameter.columns // shape.tensor)
        case "expert_rows":
            own = replace(parameter, count=parameter.count // shape.expert)
            return replace(own, rows=own.rows // shape.expert_tensor)
        case "expert_columns":
            own = replace(parameter, count=parameter.count // shape.expert)
            return replace(own, columns=own.columns // shape.expert_tensor)
        case "expert_whole":
            return replace(parameter, count=parameter.count // shape.expert)
