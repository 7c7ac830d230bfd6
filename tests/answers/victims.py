"""Functions that workers import: some die."""

from __future__ import annotations

import os
import time


def square(number: int) -> int:
    return number * number


def square_or_die(number: int) -> int:
    """Ends its own worker at 7, as the system does where memory is short."""
    if number == 7:
        os._exit(9)
    time.sleep(0.001)
    return number * number


def square_or_raise(number: int) -> int:
    if number == 7:
        raise ValueError("seven")
    return number * number


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
