"""Inference: what an engine takes for prompts and for tokens, from the same layers, kernels and
links as training, and how many sequences it has room for."""
