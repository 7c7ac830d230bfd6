"""The reference trainer: Kimi K2's training stack in PyTorch, small enough to read and exact enough
to judge the twin by."""

import os

# Read when torch loads. Threads that spin while they wait for each other keep the very cores that
# they wait for: on a machine that others use, a step of nano took 10 to 28 s on two threads so, and
# 0.6 to 1.4 s with threads that sleep (load 17 to 25 on two cores, 2026-11-29).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
