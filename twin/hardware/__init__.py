"""From operations to seconds: what a GPU with one software stack needs for the work of a kernel."""

from twin.hardware.roofline import seconds, speed_of_light

__all__ = ["seconds", "speed_of_light"]
