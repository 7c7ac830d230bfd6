"""What the host of the reference does for a training step on a CPU: how often, and how long.

`counting` counts the calls of one step by the twin's operation (`labels`). `items` times the
reference's own functions on tiny tensors (`functions`), its loops over experts, and calls of torch.
`python -m reference.measure` times them as its group `host`, and writes them as software. Those of
one machine stand in `scenarios/catalog/software/reference-cpu.yaml`.
"""
