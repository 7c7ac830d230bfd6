"""From operations to seconds: what a GPU with one software stack needs for the work of a kernel."""

from twin.hardware.roofline import (
    Price,
    Prices,
    covered,
    measured_apart,
    price,
    prices,
    seconds,
    slowdown,
    speed_of_light,
)

__all__ = [
    "Price",
    "Prices",
    "covered",
    "measured_apart",
    "price",
    "prices",
    "seconds",
    "slowdown",
    "speed_of_light",
]
