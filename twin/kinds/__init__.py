"""Kinds of work: a training step, the phases of a run, rollouts, an iteration of reinforcement
learning, a weight update. A kind is a folder."""
