"""The reference trainer: Kimi K2's training stack in PyTorch, small enough to read and exact enough
to judge the twin by."""
