"""The parts of `reference.train`: stages of a run, its state, its folder, what it says."""
