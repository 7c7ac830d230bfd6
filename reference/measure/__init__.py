"""What the device at hand can do, measured: times of kernels, copies, collectives and whole steps,
and the calibration profile that they make in the twin's format.

`python -m reference.measure` times groups of operations (`groups`), writes the raw points
(`points`), fits the laws by which the twin prices kernels (`laws`, `fitting`, `profile`, `limits`),
and writes a GPU, a node and a calibration as catalog parts (`catalog`). The twin is not imported:
the two halves meet in files, and the tests compare both statements of each law.
"""
