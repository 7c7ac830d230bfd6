"""YAML 1.2 with positions."""

from __future__ import annotations

import pytest

from twin.errors import Origin, Problem, render
from twin.loading.tree import plain, walk
from twin.loading.yaml_text import read_yaml, split_lines


def read(text: str) -> tuple[object, str]:
    lines = split_lines(text)

    def locate(line: int, column: int, width: int) -> Origin:
        return Origin("f", line + 1, column + 1, lines[line] if line < len(lines) else "", width)

    tree, problems = read_yaml(text, locate)
    return (plain(tree) if tree else None), render(problems)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("true", True),
        ("~", None),
        ("1e9", 1e9),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("15.5T", "15.5T"),
        ("'16'", "16"),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("2.0USD", "2.0USD"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("!<tag:yaml.org,2002:bool> maybe", "maybe"),
        ("!<tag:yaml.org,2002:null> foo", "foo"),
        ("0x" + "f" * 5000, "0x" + "f" * 5000),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert read(f"a: {text}") == ({"a": value}, "")


def test_every_value_has_line_column_and_width() -> None:
    text = "a:\n  b: [10, 'x y']\nc: |\n  long\n"
    lines = split_lines(text)
    tree, _ = read_yaml(text, lambda n, c, w: Origin("f", n + 1, c + 1, lines[n], w))
    assert tree
    places = {
        ".".join(path): (node.origin.line, node.origin.column, node.origin.width)
        for path, (_, node) in walk(tree)
    }
    assert places["a.b"] == (2, 6, 11)
    assert places["a.b.0"] == (2, 7, 2)
    assert places["a.b.1"] == (2, 11, 5)
    assert places["c"] == (3, 4, 1)


def test_an_alias_is_a_copy_and_a_recursive_one_is_refused() -> None:
    assert read("a: &x {b: 1}\nc: *x") == ({"a": {"b": 1}, "c": {"b": 1}}, "")
    assert "TW002 nested too deeply" in read("a: &x [1, *x]")[1]


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("%YAML 1.1\n---\na: yes", "1:1", "directives mean nothing here"),
        ("# x\n\n%YAML 1.3\n---\na: 1", "3:1", "directives mean nothing here"),
        ("a: 1\nb: !!bool maybe", "2:4", "the tag `tag:yaml.org,2002:bool` means nothing here"),
        ("a: !!seq {b: 1}", "1:4", "the tag `tag:yaml.org,2002:seq` means nothing here"),
        ("a: &x !!str 1", "1:4", "the tag `tag:yaml.org,2002:str` means nothing here"),
        ("a: &x {b: 1}\nc: {<<: *x}", "2:5", "YAML 1.2 has no merge keys"),
        ("a: 1\r\nb: 'x\x00'", "2:6", "not YAML: unacceptable character #x0000"),
        ("a: 1\nb: " + "[" * 1500, "2:104", "nested too deeply"),
        ("a: 1\nb: &x [1, *x]", "2:8", "nested too deeply"),
        ('a: 1\nb: ["\\ude00"]', "2:5", "half of a character that takes two escapes"),
        ('"\\ud83d": 1', "1:1", "half of a character that takes two escapes"),
    ],
)
def test_what_is_refused_is_named_where_it_stands(text: str, place: str, message: str) -> None:
    assert read(text)[1].startswith(f"f:{place}: TW00")
    assert message in read(text)[1].splitlines()[0]


def test_a_directive_that_says_what_is_read_anyway_is_no_mistake() -> None:
    assert read("# x\n%YAML 1.2 # y\n---\na: no") == ({"a": "no"}, "")


def test_aliases_cannot_write_more_than_a_scenario_ever_holds() -> None:
    nine = ["[" + ", ".join("x" * 9) + "]"]
    nine += [f"[{', '.join([f'*l{level}'] * 9)}]" for level in range(5)]
    bomb = "\n".join(f"k{level}: &l{level} {text}" for level, text in enumerate(nine))
    assert "f:1:13: TW002 more than 100,000 values" in read(bomb)[1]


@pytest.mark.parametrize(
    "text", ["a: !tag 1", "? [1, 2]\n: 3", "a: 1\n---\nb: 2", "a: [", "\ta: 1"]
)
def test_what_is_no_plain_document_is_a_problem_and_no_crash(text: str) -> None:
    assert read(text)[1].startswith("f:")


def test_a_long_line_is_cut_around_the_caret() -> None:
    _, shown = read("a: {" + ", ".join(f"key{n}: 1" for n in range(60)) + ", key1: 2}")
    header, line, caret, _ = shown.splitlines()
    assert header.startswith("f:1:")
    assert len(line) <= 124
    assert line[caret.index("^") : caret.rindex("^") + 1] == "key1"


def test_control_characters_reach_no_terminal() -> None:
    origin = Origin("f", 1, 1, "a\x1b[31m", 1)
    assert "\x1b" not in render([Problem("TW002", "", "x", "", origin)])
