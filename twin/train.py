"""What is trained in one run: sizes, optimizer, numbers and kernels. It knows the axes of
optimizers and of routing, whose members declare their own sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field, ValidationInfo, field_validator, model_validator

from twin import units
from twin.arch.kernels import ELEMENT, VALUE
from twin.arch.ops import CrossEntropy
from twin.errors import FieldError
from twin.optimizers.base import Optimizer
from twin.routing import Balanced, Routing
from twin.spec.axis import Axis
from twin.spec.base import UNWRITTEN, Flag, Spec, Tokens, written_as
from twin.spec.model import LoraSpec
from twin.spec.recipe import Precision, RecipeSpec, Scaling
from twin.spec.vision import ImagesSpec

OF_A_RECIPE: Final = {"precision": "bf16", "fp8_scaling": "block", "fp8_param_gather": False}
"""Fields that a recipe says, and what they are without one."""


class TrainSpec(Spec):
    """The training run: sizes, optimizer, numbers and kernels."""

    tokens: Tokens
    """tokens of the whole run"""
    sequence: Annotated[Tokens, Field(le=10**8)]
    """tokens per sequence"""
    # After `sequence`: pydantic validates in this order, and a batch in sequences needs it.
    global_batch: Annotated[Tokens, Field(le=10**12), written_as("tokens", "sequences")]
    """tokens per step; written in tokens or sequences"""
    optimizer: Annotated[Optimizer, Axis("twin.optimizers")]
    """how weights move once the gradients of a step are known"""
    recipe: Annotated[RecipeSpec | None, UNWRITTEN] = None
    """numbers of products by name: `precision`, `fp8_scaling` and `fp8_param_gather` are its, and
    it says which layers and parts stay in bf16; null: none do, of linear layers and experts"""
    precision: Precision = "bf16"
    """numbers of matrix products of linear layers and experts, the rest in bf16: fp8; nvfp4 as in
    Transformer Engine; mxfp4 with a scale per 32 values"""
    fp8_scaling: Scaling = "block"
    """of fp8: block as in DeepSeek-V3; tensor: one scale per tensor, of the steps before, as in
    Transformer Engine, whose casts are part of the kernels before them, and whose experts get their
    tokens in bf16; current: of the tensor itself, so that casts are kernels of their own, read
    once more for the maximum, and experts are cast one by one; mx: of 32 values, cast by kernels of
    their own along both sides; row: of each row of an operand, cast by rows and by columns, as
    torchao's rowwise recipe"""
    gradients: Literal["fp32", "bf16"] = "fp32"
    """dtype in which gradients are accumulated over micro-batches"""
    gradients_sent: Annotated[Literal["bf16", "fp8"] | None, UNWRITTEN] = None
    """dtype in which they are reduced over ranks: bf16 as DeepSpeed's communication_data_type; fp8
    with one scale per tensor, as FP8-LM; null: as they are accumulated"""
    fp8_param_gather: Flag = False
    """new weights are sent to other ranks in FP8, a byte each, with one scale per tensor
    (Megatron-LM's flag of that name); of mx in bf16, since each tensor is kept along both sides"""
    attention_kernel: Literal["flash", "unfused"] = "flash"
    """unfused: scores and softmax go through device memory, as before fused kernels"""
    cross_entropy: CrossEntropy = "fused"
    """the loss on the logits: fused as in Megatron-LM, in place on an fp32 copy; eager as PyTorch's
    kernels, one after the other on fp32; eager_held: so in a loop that holds the fp32 logits until
    the backward pass is over; compiled into one kernel each way that reads bf16;
    chunked: a part of the vocabulary at a time, whose logits are made again for the backward
    pass"""
    expert_weights: Literal["inside", "outputs"] = "inside"
    """where routing weights multiply: inside experts, with SwiGLU, as in Megatron-LM; outputs: what
    experts give, in fp32, as in torchtitan, which keeps that copy"""
    expert_capacity: Annotated[float, Field(gt=0, le=100)] | None = None
    """places of each expert over its mean number of rows: tokens beyond are dropped, empty places
    padded, so that no rank is fuller and no counts are exchanged; with the dispatchers alltoall
    (Megatron-LM's --moe-pad-expert-input-to-capacity) and einsum. null: nothing is dropped; for
    einsum 1"""
    images: Annotated[ImagesSpec | None, UNWRITTEN] = None
    """images that the model's encoder reads; null: none"""
    lora: LoraSpec | None = None
    """low-rank adapters, which alone are trained; null: all weights are"""
    routing: Annotated[Routing, Axis("twin.routing")] = Balanced()
    """how tokens spread over experts"""
    gc_interval: Annotated[int, Field(ge=0, le=10**6)] | None = None
    """steps between garbage collections of Python that all ranks do together (Megatron-LM's
    --manual-gc-interval, torchtitan's gc_freq); 0: none while training; null: as the software
    does"""

    @property
    def gathered_bytes(self) -> float:
        """Bytes of a new weight of a linear layer on its way to other ranks."""
        if self.recipe is not None and self.recipe.fp4_param_gather:
            return VALUE[self.precision]
        per_tensor = self.precision == "fp8" and self.fp8_scaling in ("tensor", "current")
        return 1 if self.fp8_param_gather and per_tensor else ELEMENT

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient between micro-batches. The optimizer that reads it is counted as for
        fp32 whatever it is."""
        return 4 if self.gradients == "fp32" else 2

    @property
    def sent_bytes(self) -> int:
        """Bytes of a gradient on its way to other ranks."""
        sent = {"bf16": 2, "fp8": 1}
        return sent[self.gradients_sent] if self.gradients_sent else self.gradient_bytes

    @property
    def global_batch_sequences(self) -> int:
        """Sequences per step; exact, because a batch is whole sequences."""
        return self.global_batch // self.sequence

    @model_validator(mode="before")
    @classmethod
    def _numbers_of_the_recipe(cls, written: Any) -> Any:
        """What a recipe says; nothing else may stand beside it."""
        if not isinstance(written, Mapping):
            return written
        fields = dict(cast("Mapping[str, Any]", written))
        recipe = fields.get("recipe")
        if isinstance(recipe, RecipeSpec):
            recipe = recipe.model_dump()
        if not isinstance(recipe, Mapping):
            return fields
        said = cast("Mapping[str, Any]", recipe)
        own = {name: said[name] for name in OF_A_RECIPE if said.get(name) is not None}
        for name in own.keys() & fields.keys():
            if fields[name] != own[name]:
                message = f"`train.{name}: {fields[name]}` stands beside a recipe of {own[name]}"
                raise FieldError("TW017", message, f"leave out `{name}`, or `recipe`")
        return fields | own

    @field_validator("global_batch", mode="before")
    @classmethod
    def _batch_in_tokens(cls, written: Any, info: ValidationInfo) -> str:
        """A batch is written in tokens or in sequences, so it always needs its unit."""
        sequence: int | None = info.data.get("sequence")
        if not isinstance(written, str) or not written.endswith(("tok", "seq")):
            _refuse_batch(written)
        if written.endswith("seq"):
            # Without a valid sequence length, which is reported on its own, any length will do.
            return f"{int(units.parse(written, 'sequences')) * (sequence or 1)}tok"
        tokens = int(units.parse(written, "tokens"))
        if sequence and tokens % sequence:
            _refuse_partial_sequence(tokens, sequence)
        return written


def _refuse_batch(written: Any) -> None:
    """Raise what is wrong with a batch that names neither unit."""
    message = "a batch is a number of tokens or of sequences, and says which"
    is_number = isinstance(written, int | str) and not isinstance(written, bool)
    number = units.leading_number(str(written)) if is_number else None
    raise FieldError("TW012", message, f"write `{number or 64}tok` or `{number or 64}seq`")


def _refuse_partial_sequence(tokens: int, sequence: int) -> None:
    below = tokens // sequence
    fixes = [f"`{count}seq` ({count * sequence}tok)" for count in (below, below + 1) if count]
    message = f"{tokens} tokens are no whole number of sequences of {sequence} tokens"
    raise FieldError("TW017", message, f"write {' or '.join(fixes)}")
