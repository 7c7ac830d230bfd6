"""Sliders go from end to end of a number's range, through its present value, in its own unit."""

import pytest

from twin.ui.assumed import between


@pytest.mark.parametrize(
    ("low", "value", "high", "stops"),
    [
        ("0.5", "0.7", "0.9", ["0.5", "0.55", "0.6", "0.65", "0.7", "0.75", "0.8", "0.85", "0.9"]),
        ("1us", "2us", "2us", ["1us", "1.25us", "1.5us", "1.75us", "2us"]),
        ("400Gbps", "50GB/s", "60GB/s", ["400Gbps", "50GB/s", "60GB/s"]),
        ("1", "2", "3", ["1", "2", "3"]),
    ],
)
def test_stops(low, value, high, stops):
    assert between(low, value, high) == stops


def test_the_present_value_is_always_a_stop():
    assert "0.7" in between("0.1", "0.7", "0.7")
