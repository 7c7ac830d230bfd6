"""The operations of tools: each declares its tools, acts on rows, and takes part in tasks."""
