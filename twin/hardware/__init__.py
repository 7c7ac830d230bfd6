"""From operations to seconds: what a GPU with one software stack needs for the work of a kernel."""

from twin.hardware.contention import slowdown
from twin.hardware.roofline import (
    Price,
    covered,
    measured_apart,
    price,
    seconds,
    speed_of_light,
)

__all__ = ["Price", "covered", "measured_apart", "price", "seconds", "slowdown", "speed_of_light"]
