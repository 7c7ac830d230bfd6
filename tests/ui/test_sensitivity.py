"""Sliders go from end to end of a number's range, through its present value, in its own unit."""

import pytest

from twin.ui.sensitivity import between


@pytest.mark.parametrize(
    ("low", "value", "high", "stops"),
    [
        ("0.5", "0.7", "0.9", ["0.5", "0.55", "0.6", "0.65", "0.7", "0.75", "0.8", "0.85", "0.9"]),
        ("1us", "2us", "2us", ["1us", "1.25us", "1.5us", "1.75us", "2us"]),
        ("0us", "0s", "2.0ms", ["0s", "500us", "1ms", "1.5ms", "2.0ms"]),
        ("400Gbps", "50GB/s", "60GB/s", ["50GB/s", "52.5GB/s", "55GB/s", "57.5GB/s", "60GB/s"]),
        ("1", "2", "3", ["1", "2", "3"]),
    ],
)
def test_stops(low, value, high, stops):
    assert between(low, value, high) == stops


def test_the_present_value_is_always_a_stop():
    assert "0.7" in between("0.1", "0.7", "0.7")


@pytest.mark.parametrize(
    ("low", "value", "high"),
    [("0us", "0s", "2ms"), ("0", "0.0", "1"), ("1GB/s", "8Gbps", "2GB/s"), ("10", "10", "20")],
)
def test_a_value_at_an_end_of_its_range_is_an_end_of_the_slider(low, value, high):
    stops = between(low, value, high)
    assert (stops[0], stops[-1]) == (value, high)


def test_a_number_without_a_range_to_move_in_has_one_stop():
    assert between("2ms", "2ms", "2000us") == ["2ms"]
