"""Real runs: what a trainer's ranks recorded, as the traces that simulated steps have.

`timeline` reads one rank's file, `run_folder` all of a run's, `step` makes one step a `Trace`,
`summary` describes all steps, and `compare` compares a step with a prediction.
"""
