"""Cross-entropy on the logits, from the projection to the vocabulary to the loss and back.

Five ways, which differ in the tensors that exist. With L logits on a rank, in bytes:

- `fused` (Megatron-LM, `fused_cross_entropy.py`): bf16 logits (2 L) are cast to an fp32 copy (4 L)
  on which all happens in place: maximum, exponential and sum, softmax. The softmax is kept, 4 L
  (Korthikanti et al. 2022, arXiv:2205.05198, section 4.3); backward turns it into the gradient in
  place and casts that to bf16. Fullest: 6 L.
- `eager` (`torch.nn.functional.cross_entropy` on `logits.float()`, as in torchtitan's `loss.py`):
  bf16 logits (2 L), an fp32 copy (4 L), and log-softmax's output (4 L), which is kept while the
  others go. Backward: the gradient of log-softmax's output (4 L; zero but for one in a row), that
  of its input (4 L), and from it the bf16 one (2 L). Fullest: 12 L, before the first two go. Over
  tensor ranks (`loss_parallel`) the gradient is made by four kernels, with the exponential and a
  sum beside it: 16 L. PyTorch's softmax reads rows that fit no SM three times.
- `eager_held`: the same in a training loop that has a variable for the fp32 copy until the backward
  pass is over (prime-rl's `sft/train.py` of January 2026: `out`). Fullest: 16 L.
- `compiled` (torch.compile on the same function): bf16 logits are kept (2 L); one kernel reads them
  twice for maximum and sum, one writes the bf16 gradient (2 L). Fullest: 4 L.
- `chunked` (prime-rl's fused head, `lm_head.py`): projection and loss of 2,048 entries of the
  vocabulary at a time, with eager kernels on fp32; nothing of L is kept, and the backward pass
  multiplies a chunk's logits again before it makes their gradient. Fullest: 18 bytes for each logit
  of one chunk. Approximation: products of chunks take the time of the whole one; and what adds up
  the hidden state's gradient over chunks is left out.
"""

from __future__ import annotations

from typing import Final

from twin.arch.kernels import ELEMENT, SINGLE, Matmul, linear, streaming
from twin.arch.ops import Exchange, Item, Op, Shape, Work

CHUNK: Final = 2048
"""Entries of the vocabulary whose logits exist at a time (prime-rl's default)."""


def head_and_loss(shape: Shape, hidden: int, vocab: int) -> tuple[Item, ...]:
    """The projection of the tokens' hidden state, and the loss. `vocab` is what a rank has."""
    product = Matmul(shape.tokens, hidden, vocab, accumulate=shape.accumulate)
    logits = shape.tokens * vocab
    match shape.cross_entropy:
        case "fused":
            return (linear("head", product), *_fused(shape, logits))
        case "eager":
            return (linear("head", product), *_eager(shape, logits))
        case "eager_held":
            return (linear("head", product), *_eager(shape, logits, held=True))
        case "compiled":
            return (linear("head", product), *_compiled(shape, logits))
        case "chunked":
            return _chunked(shape, product)


def _fused(shape: Shape, logits: int) -> tuple[Item, ...]:
    """The fp32 copy of the logits, made by `loss_max`, is what is kept."""
    single = SINGLE * logits
    cast = Work(0.0, ELEMENT * logits + single, 1)
    twice = Work(0.0, 2 * single, 1)
    return (
        streaming("loss_max", cast, cast, single, 0.0, "loss"),
        *_agree("loss_max_reduce", SINGLE * shape.tokens, shape),
        streaming("loss_exp", Work(0.0, 3 * single, 2), Work(), 0.0, 0.0, "loss"),
        *_agree("loss_sum_reduce", 2 * SINGLE * shape.tokens, shape),
        streaming("loss_softmax", twice, twice, 0.0, 0.0, "loss"),
    )


def _eager(shape: Shape, logits: int, held: bool = False) -> tuple[Item, ...]:
    """`loss_log_softmax` keeps its output, and the loop may hold the fp32 copy. `output` of
    `loss_nll` is what exists backward of the gradient that it makes."""
    single = SINGLE * logits
    cast = Work(0.0, ELEMENT * logits + single, 1)
    if shape.tensor == 1:
        softmax = Work(0.0, 4 * single, 1), Work(0.0, 4 * single, 1)
        pick, made = Work(0.0, single, 2), single
    else:
        # Maximum; shift; exponential; sum; minus its logarithm.
        softmax = Work(0.0, 8 * single, 5), Work()
        # Zeros; exponential; their sum; times the loss's gradient.
        pick, made = Work(0.0, 8 * single, 5), 2 * single
    return (
        streaming("loss_float", cast, cast, single * held, single, "loss"),
        *_agree("loss_max_reduce", SINGLE * shape.tokens, shape),
        streaming("loss_log_softmax", *softmax, single, single, "loss"),
        *_agree("loss_sum_reduce", 2 * SINGLE * shape.tokens, shape),
        streaming("loss_nll", Work(0.0, 2.0 * SINGLE * shape.tokens, 1), pick, 0.0, made, "loss"),
    )


def _compiled(shape: Shape, logits: int) -> tuple[Item, ...]:
    """Keeps the projection's output; the gradient's place is counted with the projection."""
    twice = Work(0.0, 2.0 * ELEMENT * logits, 1)
    return (
        *_agree("loss_max_reduce", SINGLE * shape.tokens, shape),
        *_agree("loss_sum_reduce", 2 * SINGLE * shape.tokens, shape),
        streaming("loss", twice, twice, ELEMENT * logits, 0.0, "loss"),
    )


def _chunked(shape: Shape, product: Matmul) -> tuple[Item, ...]:
    """`head_again` multiplies a chunk's logits before their gradient. Forward: cast, scale,
    maximum, shift, exponential, sum, and the two kernels of the entropy. Backward: cast, scale,
    shift, exponential, times the gradient, scale, cast."""
    logits, chunks = product.rows * product.outputs, -(-product.outputs // CHUNK)
    chunk = product.rows * min(CHUNK, product.outputs)
    single, cast = SINGLE * logits, (ELEMENT + SINGLE) * logits
    return (
        Op(
            "head",
            "gemm",
            product.forward(),
            product.input_gradient(),
            product.weight_gradient(),
            output=ELEMENT * chunk,
            late=ELEMENT * product.rows * product.inputs,
        ),
        Op("head_again", "gemm", Work(), product.forward()),
        streaming(
            "loss",
            Work(0.0, cast + 12.0 * single, 8 * chunks),
            Work(0.0, 2 * cast + 10.0 * single, 7 * chunks),
            0.0,
            4 * SINGLE * chunk,
            "loss",
        ),
        *_agree("loss_sum_reduce", 2 * SINGLE * shape.tokens, shape),
    )


def _agree(name: str, size: float, shape: Shape) -> tuple[Exchange, ...]:
    if shape.tensor == 1:
        return ()
    return (Exchange(name, "tensor", size, "all_reduce", None),)
