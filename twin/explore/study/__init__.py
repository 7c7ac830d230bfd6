"""Studies: questions that take many answers of the fast path."""
