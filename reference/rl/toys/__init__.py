"""Tasks small enough that a model learns them within a minute: proofs of the loop, not skills."""
