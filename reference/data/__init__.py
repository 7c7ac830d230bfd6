"""Pre-training data: raw files to shards with provenance, parts of it rephrased."""
