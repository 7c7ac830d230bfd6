"""What mixes the tokens of a sequence where a layer has no attention: the base of the choices.

Each choice is a module of `twin.arch.blocks` with its fields and its arithmetic
(`twin.arch.mixer.Block`); fields of a model name only this base.
"""

from __future__ import annotations

from typing import Any

from twin.spec.base import Spec


class Mixer(Spec):
    """Linear attention or a state-space block."""

    # Each member narrows it to its one literal. Any, as in `twin.optimizers.base.Optimizer`.
    kind: Any
