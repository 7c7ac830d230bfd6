"""Answers of untrusted code: what they are, and when they are right."""

from __future__ import annotations

from typing import Any

import pytest

from reference.agentic.code.hidden import (
    CheckGroup,
    CheckResult,
    OddValue,
    Raises,
    is_expected,
    run_checks,
)

_TEXTS = {
    "value": ("def f(x): return {(1, x): {2}, 'a': (x, None, 1.5)}", "result = f(1)"),
    "raises": ("def f(x): return {}[x]", "result = f(1)"),
    "syntax": ("def f(x:", "result = 1"),
    "memory": ("def f(x): return [0] * 10**10", "result = f(1)"),
    "timeout": ("def f(x):\n    while True: pass", "result = f(1)"),
    "exited": ("import os\ndef f(x): os._exit(0)", "result = f(1)"),
    "long": ("def f(x): return 'x' * 100_000", "result = f(1)"),
    "odd": ("def f(x): return object", "result = f(1)"),
    "deep": ("def f(x):\n    a = []\n    a.append(a)\n    return a", "result = f(1)"),
}


def test_every_end_of_code_has_its_name() -> None:
    groups = [CheckGroup((check,), load) for load, check in _TEXTS.values()]
    found = {name: one[0] for name, one in zip(_TEXTS, run_checks(groups, cpu_s=0.2), strict=True)}
    assert found["value"] == CheckResult("value", {(1, 1): frozenset({2}), "a": [1, None, 1.5]})
    assert found["raises"] == CheckResult("raises", "KeyError")
    for name in ("syntax", "memory", "timeout", "exited", "long"):
        assert found[name].kind == name
    assert isinstance(found["odd"].value, OddValue)
    assert found["deep"] == CheckResult("raises", "RecursionError")


def test_who_ends_the_driver_gets_no_answer_counted() -> None:
    load = "import os\nos.kill(os.getppid(), 9)"
    assert (
        run_checks([CheckGroup(("result = 1", "result = 2"), load)])[0]
        == (CheckResult("exited"),) * 2
    )


def test_checks_have_names_of_their_own_and_modules_beside_them() -> None:
    files = {"here/one.py": "value = 1", "there/one.py": "value = 2"}
    check = "from one import value\nresult = value + globals().get('kept', 0)\nkept = 9"
    groups = [CheckGroup((check, check), path=path) for path in ("here", "there")]
    values = [[answer.value for answer in one] for one in run_checks(groups, files)]
    assert values == [[1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("value", "expected", "right"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (True, 1, False),
        (1, True, False),
        ([1, 2], (1, 2), True),
        ([1], [1, 2], False),
        (0.1 + 0.2, 0.3, False),
        (float("inf"), float("inf"), True),
        ({"a": [1]}, {"a": (1,)}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        (frozenset({1}), {1}, True),
        ("1", 1, False),
        (None, None, True),
        (OddValue("x"), OddValue("x"), False),
    ],
)
def test_values_are_compared_as_they_are(value: Any, expected: Any, right: bool) -> None:
    assert is_expected(CheckResult("value", value), expected) == right


def test_an_exception_is_expected_by_its_name() -> None:
    assert is_expected(CheckResult("raises", "ValueError"), Raises("ValueError"))
    assert not is_expected(CheckResult("raises", "KeyError"), Raises("ValueError"))
    assert not is_expected(CheckResult("value", "ValueError"), Raises("ValueError"))
    assert not is_expected(CheckResult("timeout"), None)
