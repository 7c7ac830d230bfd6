"""CSV that a spreadsheet opens: text stays text."""

import csv
import io

import pytest

from twin.answers.csv_text import to_csv


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_begins_a_formula(first: str):
    text, shown = f"{first}HYPERLINK(1)", f"'{first}HYPERLINK(1)".replace("\r", " ")
    found = csv.reader(io.StringIO(to_csv([text], [[text, f"a\r{text}"]]), newline=""))
    assert list(found) == [[shown], [shown, f"a {text}".replace("\r", " ")]]


def test_numbers_and_other_text_are_as_they_are():
    rows = [[-1.5, "-1.5", "a=b", "", None, 3, "1e-3", True]]
    assert to_csv("abcdefgh", rows) == "a,b,c,d,e,f,g,h\n-1.5,-1.5,a=b,,,3,1e-3,True\n"
