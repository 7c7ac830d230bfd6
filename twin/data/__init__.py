"""Data that is generated before training: which requests it takes, and what they cost on the
cluster by the inference model."""
