"""Kinds of verifiable tasks, a file per family."""
