"""What an edit and a slider may cost the server. Run alone, by `make verify`."""

from __future__ import annotations

import time

import pytest

from tests.ui.conftest import events
from tests.ui.test_pages import PAGES
from twin.answers import ask
from twin.answers.nearest import StepAnswer
from twin.figures.timeline import overview, played_ns, timeline
from twin.loading import load
from twin.ui.answers import Question
from twin.ui.sensitivity import what_if

pytestmark = pytest.mark.benchmark

K2 = "kimi-k2-2048xh800"


def test_a_slider_answers_in_under_2_s_of_cpu():
    asked = Question(K2, None, (), 0)
    what_if(asked, ())
    seconds: list[float] = []
    for latency in ("2us", "3us", "4us", "5us", "6us"):
        begin = time.process_time()
        answer = what_if(asked, (("cluster.node.nic.latency", latency),))
        seconds.append(time.process_time() - begin)
        assert isinstance(answer, StepAnswer)
    print(f"slider: {min(seconds) * 1e3:.0f} ms of CPU")
    assert min(seconds) < 2


def test_a_trace_of_100_000_spans_is_drawn_in_under_half_a_second_of_cpu():
    trace = ask(load(K2), cache=False).trace
    spans = len(trace.spans.start)
    assert spans >= 100_000
    begin = time.process_time()
    pictures = (overview(trace, "light"), timeline(trace, "light", (0, played_ns(trace))))
    for picture in pictures:
        picture.figure.to_json()
    seconds = time.process_time() - begin
    print(f"{spans:,} spans drawn in {seconds:.2f} s of CPU")
    assert seconds < 0.5


@pytest.mark.parametrize(("page", "section"), PAGES)
def test_a_page_takes_under_2_mb(opened, page, section):
    events(K2)
    size = sum(weight(opened(K2, page=page, section=section)._tree))
    print(f"{page}, {section}: {size / 1e6:.2f} MB")
    assert 1e3 < size < 2e6


def weight(node):
    """Bytes of every element that is sent to the browser."""
    if proto := getattr(node, "proto", None):
        yield proto.ByteSize()
    for child in getattr(node, "children", {}).values():
        yield from weight(child)
