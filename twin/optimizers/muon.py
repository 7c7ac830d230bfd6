"""Muon for matrices, AdamW for the rest: `twin.optimizers.orthogonal`, and nothing else.

Sources: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al.
2025, "Muon is scalable for LLM training" (arXiv:2502.16982).
"""

from __future__ import annotations

from typing import Literal, final

from twin.optimizers.orthogonal import Orthogonal


@final
class Muon(Orthogonal):
    """Orthogonalised momentum for matrices, AdamW for the rest."""

    kind: Literal["muon"] = "muon"
