"""The model: a decoder-only transformer built from the model YAML that the simulator reads."""

from reference.model.transformer import Transformer

__all__ = ["Transformer"]
