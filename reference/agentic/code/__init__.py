"""Programming tasks: one function to write, real execution, hidden tests that decide."""
