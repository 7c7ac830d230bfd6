"""Tasks: chains of calls that are known to solve what a user wants, and their rubrics."""
