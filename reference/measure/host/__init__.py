"""What the host of the reference does for a training step on a CPU: how often, and how long.

`counting` counts the calls of one step by the twin's operation (`labels`). `items` times the
reference's own functions on tiny tensors (`functions`), its loops over experts, and calls of torch.
The times stand in `scenarios/catalog/software/reference-cpu.yaml`.
"""
