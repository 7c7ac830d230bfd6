"""The page to send: complete in itself, the app's figures, and the scenario to take out again."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from twin.answers import Run, ask
from twin.cli.main import main
from twin.errors import ScenarioError
from twin.figures.plotly import plain
from twin.interop.export.base import write
from twin.interop.export.html import pictures
from twin.loading import load, scenario_hash
from twin.reports import verdict
from twin.reports.head import sentence

HOSTILE = 'a </script><script>document.title="taken"</script> <b>&amp; "b" # c'


@pytest.fixture(scope="module")
def page(small: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the small run."""
    return write(small, "html", tmp_path_factory.mktemp("page") / "small.html")[0]


@pytest.fixture(scope="module")
def hostile(small: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a scenario whose name would break out of it."""
    scenario = small.scenario.model_copy(update={"name": HOSTILE})
    made = ask(scenario, cache=False)
    return write(made, "html", tmp_path_factory.mktemp("page") / "hostile.html")[0]


def test_the_verdict_comes_first(small: Run, page: Path) -> None:
    text = page.read_text()
    body = re.sub(r"<[^>]*>", " ", text[text.index("<body>") :])
    words = " ".join(unescape(body).split())
    assert words.startswith(f"{small.report.name} {verdict(small.report)}")


def test_the_page_says_what_came_of_each_expectation(small: Run, page: Path, out: Path) -> None:
    expect = 'expect=["mfu > 90%", "fits == true"]'
    promised = ask(load(page, [expect]), cache=False)
    (file,) = write(promised, "html", out / "promised.html")
    text = unescape(file.read_text())
    assert len(promised.report.expectations) == 2
    places = [text.index(f"<li>{sentence(one)}</li>") for one in promised.report.expectations]
    assert text.index("Exposed communication") < min(places)
    assert max(places) < text.index("<h2>Where the step goes</h2>")
    assert not small.report.expectations
    assert "<h2>Expectations</h2>" not in page.read_text()


def test_the_page_is_small_enough_to_send(page: Path) -> None:
    assert page.stat().st_size < 6e6


def test_the_page_carries_the_figures_of_the_app(small: Run, page: Path) -> None:
    drawn = [one for group in pictures(small).values() for one in group]
    data = re.search(r'id="figures">(.*?)</script>', page.read_text(), re.DOTALL)
    assert data
    assert json.loads(data[1]) == [plain(one.figure) for one in drawn]
    text = unescape(page.read_text())
    cells = {cell for one in drawn for row in one.table for cell in row.values()}
    assert cells
    assert [cell for cell in cells if f">{cell}<" not in text] == []


def test_every_catalog_number_stands_there_with_its_source(small: Run, page: Path) -> None:
    text = unescape(page.read_text())
    assert small.scenario.ledger
    for path, known in small.scenario.ledger.items():
        assert path in text
        assert known.source is None or known.source.url in text


def test_the_scenario_comes_out_of_the_page_as_it_went_in(
    small: Run, page: Path, hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(page) == small.scenario
    assert load(hostile).name == HOSTILE
    assert scenario_hash(load(hostile)) == small.report.hash
    assert main(["check", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hash"] == small.report.hash


def test_a_mistake_in_the_page_is_told_with_the_line_where_it_stands(page: Path) -> None:
    lines = page.read_text().split("\n")
    (_, place) = [at for at, line in enumerate(lines) if line.startswith("  pipeline: ")]
    lines[place] = "  pipeline: 7.5"
    (page.parent / "broken.html").write_text("\n".join(lines))
    with pytest.raises(ScenarioError) as raised:
        load(page.parent / "broken.html")
    origin = raised.value.problems[0].origin
    assert origin
    assert (origin.line, origin.text) == (place + 1, "  pipeline: 7.5")


def test_a_page_without_a_scenario_is_refused(out: Path) -> None:
    (out / "empty.html").write_text("<p>pipeline: 8</p>")
    with pytest.raises(ScenarioError, match="TW005"):
        load(out / "empty.html")


@pytest.mark.browser
@pytest.mark.parametrize("which", ["page", "hostile"])
def test_a_browser_draws_every_figure_and_asks_nobody_for_anything(
    which: str, small: Run, chromium: Any, request: pytest.FixtureRequest
) -> None:
    file: Path = request.getfixturevalue(which)
    opened = chromium.new_page(viewport={"width": 1000, "height": 800})
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda one: asked.append(one.url))
    opened.on("console", lambda one: complaints.append(one.text))
    opened.on("pageerror", lambda one: complaints.append(str(one)))
    opened.goto(file.as_uri())
    count = sum(len(group) for group in pictures(small).values())
    opened.wait_for_function(
        f"document.querySelectorAll('.plot .plot-container').length == {count}"
    )
    assert opened.title() == load(file).name
    assert opened.locator("h1").inner_text().split() == load(file).name.split()
    assert asked == [file.as_uri()]
    assert complaints == []
    opened.close()


@pytest.mark.slow
@pytest.mark.browser
def test_on_paper_the_figures_are_as_wide_as_the_sheet(page: Path, chromium: Any) -> None:
    opened = chromium.new_page(viewport={"width": 1400, "height": 800})
    opened.goto(page.as_uri())
    opened.wait_for_selector("#figure-0 .main-svg")
    opened.evaluate(
        "addEventListener('beforeprint', () => { window.widths = [...document.querySelectorAll("
        "'.plot')].map(one => one.querySelector('.main-svg').getAttribute('width')) })"
    )
    opened.pdf(format="A4")
    assert set(opened.evaluate("window.widths")) == {"680"}
    opened.close()
