"""The command line: one module per verb. stdout is the answer, stderr is everything else."""
