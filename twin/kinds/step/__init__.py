"""One optimizer step of a training run: the five verbs of `planning`, `engine` and `reports`."""
