"""What tools do: a file per operation, with its tools, its effect on rows, and its use in tasks."""
