"""Low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685): the weights of the model are frozen,
and beside each matrix W of in x out two thin ones are trained, A of in x rank and B of rank x
out, whose product is added to it."""

from __future__ import annotations

from pydantic import Field

from twin.spec.base import Count, Spec


class LoraSpec(Spec):
    """Adapters of the matrices of attention, feed-forward blocks, shared and routed experts."""

    rank: Count = Field(description="columns of A, and rows of B")
    adapters: Count = Field(
        default=1,
        description="pairs of A and B that stand side by side, as of several users; one of them "
        "is trained and has gradients and states",
    )
