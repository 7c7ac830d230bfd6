"""The event engine: Plan to Program (`lower`), Program to Trace (`simulate`)."""

from twin.engine.lower import lower
from twin.engine.simulate import simulate

__all__ = ["lower", "simulate"]
