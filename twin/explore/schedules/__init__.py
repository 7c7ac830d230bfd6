"""A search for the order in which the stages of a pipeline run their passes: `tables` says what
passes take and hold, `kernel` runs orders by machine code, `search` looks for a better one, `bound`
says how much better any could be, and `found` checks by events."""
