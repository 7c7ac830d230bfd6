"""The page Result of a run whose data is generated."""

from __future__ import annotations


def test_the_result_says_what_generating_the_data_takes(opened) -> None:
    app = opened("kimi-k2-rephrasing-256xh800", page="result")
    assert "Data that is generated before" in [one.value for one in app.subheader]
    said = " ".join(one.value for one in app.markdown)
    assert "121B tokens are generated" in said
    (jobs,) = (one.value for one in app.table if "Tokens kept" in one.value.columns)
    assert list(jobs["Job"]) == ["knowledge", "mathematics", "kimi-k2-tool-use"]


def test_the_result_of_other_runs_does_not(opened) -> None:
    app = opened("gpt-175b-64xa100-full", page="result")
    assert "Data that is generated before" not in [one.value for one in app.subheader]
