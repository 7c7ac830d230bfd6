"""Scenario to Plan: what every rank holds, runs and sends, whether it is possible, and whether it
fits."""

from twin.planning.compile import drafts

__all__ = ["drafts"]
