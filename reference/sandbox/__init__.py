"""Isolated runs of untrusted code, and the tools that models call.

`reference.sandbox.run.run` runs a command; `python -m reference.sandbox --probe` prints the
guarantees of this machine. `inside` runs beside the untrusted code; it needs only the standard
library and imports nothing else of the sandbox.
"""
