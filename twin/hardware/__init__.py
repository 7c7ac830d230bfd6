"""From operations to seconds: what a GPU with one software stack needs for the work of a kernel."""
