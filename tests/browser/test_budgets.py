"""What the app may cost its visitor: seconds to the first page. Run alone, by `make verify`."""

from __future__ import annotations

import time

import pytest

from tests.browser.served import open_link

pytestmark = [pytest.mark.browser, pytest.mark.benchmark]


def test_the_first_page_says_its_verdict_in_under_2_s_once_the_app_is_warm(visitor, address):
    open_link(visitor(), address)
    begin = time.perf_counter()
    page = visitor()
    page.goto(address)
    page.get_by_test_id("stAlert").first.wait_for()
    page.get_by_label("Pipeline").first.wait_for()
    seconds = time.perf_counter() - begin
    print(f"first page: {seconds:.2f} s")
    assert seconds < 2.0
