"""Studies: questions that take many answers."""
