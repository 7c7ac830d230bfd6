"""The event engine: Scenario to Plan where events decide (`plan`), Plan to Program (`lower`),
Program to Trace (`simulate`)."""

from twin.engine.best_draft import plan
from twin.engine.lower import lower
from twin.engine.simulate import simulate

__all__ = ["lower", "plan", "simulate"]
