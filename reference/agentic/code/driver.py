"""Runs untrusted code inside its sandbox and returns the values, without judging them.

It reads `groups` on standard input and writes one line per check to the original standard output.
No expected value is here, so code that changes this process, forges its lines or reads its memory
gains nothing. The interpreter gets it as text; it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # each run loads this anew, and `typing` is a third of it
    from typing import Any

_LONGEST = 1 << 16
"""Characters of one answer."""
_WALL = 8
"""Wall-clock seconds per CPU second before a sleeping process is ended."""


def main() -> None:
    """Run all groups, each in a process of its own."""
    asked = json.loads(sys.stdin.buffer.read())
    say, nothing = os.dup(1), os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for number, group in enumerate(asked["groups"]):
        tell = _Line(say, asked["nonce"], number)
        child = os.fork()
        if child == 0:
            try:
                _answer(group, asked["cpu_s"], tell)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            tell(-1, ["ended", os.waitstatus_to_exitcode(status)])
    os._exit(0)


class _Line:
    """Writes an answer as a line, after a nonce that code cannot print by accident."""

    def __init__(self, stream: int, nonce: str, group: int) -> None:
        self.stream, self.nonce, self.group = stream, nonce, group

    def __call__(self, check: int, answer: list[Any]) -> None:
        text = json.dumps([self.group, check, answer])
        if len(text) > _LONGEST:
            text = json.dumps([self.group, check, ["long"]])
        data = f"\n{self.nonce} {text}\n".encode()
        while data:
            data = data[os.write(self.stream, data) :]


def _answer(group: dict[str, Any], cpu_s: float, tell: _Line) -> None:
    space: dict[str, Any] = {"__name__": "solution"}
    sys.path.insert(0, os.path.abspath(group["path"]))  # noqa: PTH100
    _bound(cpu_s)
    trouble = _run(group["load"], "solution.py", space)
    if trouble is not None:
        tell(-1, trouble)
        return
    for number, text in enumerate(group["checks"]):
        _bound(cpu_s)
        own = dict(space)
        try:
            trouble = _run(text, "check.py", own)
            tell(number, trouble or ["value", plain(own.get("result"))])
        except BaseException as error:  # noqa: BLE001  a value that cannot be written
            tell(number, ["raises", type(error).__name__, ""])


def _bound(cpu_s: float) -> None:
    """End this process after `cpu_s` more CPU seconds or at its wall-clock limit. Code that ignores
    the signals meets the sandbox's own limits."""
    for number, timer, seconds in (
        (signal.SIGPROF, signal.ITIMER_PROF, cpu_s),
        (signal.SIGALRM, signal.ITIMER_REAL, _WALL * cpu_s),
    ):
        signal.signal(number, signal.SIG_DFL)
        signal.setitimer(timer, seconds)


def _run(text: str, name: str, space: dict[str, Any]) -> list[Any] | None:
    """None, or how the text failed."""
    try:
        exec(compile(text, name, "exec"), space)
    except SyntaxError as error:
        return ["syntax", str(error)[:200]]
    except MemoryError:
        return ["memory"]
    except SystemExit:
        return ["ended", 0]
    except BaseException as error:  # noqa: BLE001  any exception is an answer
        return ["raises", type(error).__name__, _said(error)]
    return None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except BaseException:  # noqa: BLE001  its own text may raise
        return ""


def plain(value: Any) -> Any:
    """The value in JSON. A value of any other type becomes the type's name, so its own comparison
    is never used."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        return [plain(item) for item in value]
    if kind is dict:
        return {"dict": [[plain(key), plain(item)] for key, item in dict.items(value)]}
    if kind in (set, frozenset):
        return {"set": [plain(item) for item in value]}
    return {"odd": kind.__name__}


if __name__ == "__main__":
    main()
