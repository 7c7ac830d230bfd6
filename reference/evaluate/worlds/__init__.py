"""Small worlds of the built-in tasks: see `reference.agentic` for large ones."""
