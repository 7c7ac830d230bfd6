"""Predictions sealed before a run, and runs compared with them while they run.

`seal` makes a prediction a file that cannot change unnoticed, `seals` stores such files with their
checks, and `follower` reads a trainer's log while it is written and reports the run's status.
"""
