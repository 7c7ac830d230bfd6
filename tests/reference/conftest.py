"""Settings of the reference's tests: one thread, so that two test workers do not wait for each
other's threads."""

import torch

torch.set_num_threads(1)
