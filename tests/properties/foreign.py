"""Files of other programs as an attacker leaves them: configurations, launch files, recipes,
scenarios, logs, traces and measurements of which some lines or values are others, or that end too
early."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from zlib import crc32

from hypothesis import strategies as st

from tests.evidence.calibrate.synthetic import trace
from tests.interop.test_recognise import OWN, samples
from twin.interop.recognise import formats

_FOLDER = TemporaryDirectory(prefix="twin-foreign-")
_SAMPLES: Final = Path(_FOLDER.name, "samples")
_SAMPLES.mkdir()
_SHIPPED: Final = "kimi-k2-256xh800"
_POINTS: Final = Path(__file__).parents[2] / "scenarios/measured/h200-sxm-torch2.11/points"
_MEASURED: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "track": (("track", "FILE", "--once"), ("track", "FILE", "--once", "--steps", "9")),
    "calibrate": (
        ("calibrate", "FILE"),
        ("calibrate", "FILE", "--defaults", _SHIPPED, "--json"),
        ("calibrate", "FILE", "--gpu", "h800", "--defaults", _SHIPPED),
    ),
    "measured": (("measured", "FILE"), ("measured", "FILE", "--quiet")),
}
"""What is asked of logs, traces and output of tools."""
_IMPORTING: Final = Path(__file__).parents[1] / "interop" / "importing"
ANY: Final = """-1 0 1 3 0.5 1e400 -1e-400 NaN Infinity .nan null ~ true [] {} [[]] 1e9 1_000 0x10
0o7 ' \\ $ ${X} $(ls) `ls` *a &a ? % @ | > # !!python/object:x "" "x" "é" "\ud800" "日本" {"a":1}"""
FITTING: Final = """-1 0 1 2 3 7 17 64 1000 1e6 99999999999 0.5 -0.5 1e-9 null true false [] {} [1]
[null] "" "x" "1" 'full' {"a":1}"""
VALUES: Final = (
    *ANY.split(),
    *('"', "\x00", "\ufeff", "\t", "<<: *a", ": :", "- - -", "9" * 20, "9" * 400, "A" * 5000),
    *("[" * 3000 + "]" * 3000, "(" * 500, "a: [" * 60, '{"a":' * 2000 + "1" + "}" * 2000),
)
"""What stands where a number, a word or a string stood."""
MILD: Final = tuple(FITTING.split())
"""Values that most formats can hold."""
SET: Final = re.compile(r"(?<=[:=])\s*[^\s,:={}\[\]]+|(?<=\s)[\w.]+(?=\s)")
WORD: Final = re.compile(r'"[^"\n]*"|[\w.+-]+')


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A command line of `twin` on a spoiled file."""

    verb: tuple[str, ...]
    source: str
    content: bytes

    def __repr__(self) -> str:
        told = f"{len(self.content)} bytes, {crc32(self.content):x}"
        return f"{' '.join(self.verb)} on {self.source}, {told}:\n{self.content[:1500]!r}"

    @property
    def text(self) -> str:
        """The command line and the file."""
        return repr(self)

    @property
    def words(self) -> list[str]:
        """As `main` takes them."""
        file = Path(_FOLDER.name, Path(self.source).name)
        file.write_bytes(self.content)
        return [str(file) if word == "FILE" else word for word in self.verb]


@cache
def sources() -> dict[str, tuple[bytes, tuple[tuple[str, ...], ...]]]:
    """Whole files, and what is asked of each."""
    found: dict[str, tuple[bytes, tuple[tuple[str, ...], ...]]] = {}
    model = ("new", "FILE", "--gpu", "h800", "--tokens", "1T", "--gpus", "8:8", "--patience", "1s")
    for file in sorted(_IMPORTING.glob("configs/*.json")):
        asks = [("import", "FILE")] * 8 + [("import", "hf-config", "FILE"), (*model, "-j", "1")]
        found[str(file)] = file.read_bytes(), tuple(asks)
    for file in sorted(_IMPORTING.glob("launches/*")):
        given = ("--node", "h100-8gpu", "--nodes", "4", "--fabric", "rail-fat-tree-400g")
        asks = [
            ("import", "FILE"),
            ("import", "FILE", *given),
            ("import", "FILE", *given, "--json"),
        ]
        asks += [("check", "FILE"), ("import", "megatron", "FILE", *given)]
        found[str(file)] = file.read_bytes(), tuple(asks)
    for file, name in samples(_SAMPLES).items():
        if measured := [words for use in formats()[name].uses for words in _MEASURED.get(use, ())]:
            found[str(file)] = file.read_bytes(), tuple(measured)
    profiled = _SAMPLES / "profiled"
    profiled.write_text(trace(OWN), encoding="utf-8")
    every = _MEASURED["measured"] + _MEASURED["calibrate"]
    found[str(profiled)] = profiled.read_bytes(), every
    points = _POINTS / "launch.jsonl"
    found[str(points)] = points.read_bytes(), _MEASURED["calibrate"]
    return found


def _mild(text: str, at: int, _: str) -> str:
    return _value(text, at, f" {MILD[at % len(MILD)]}", SET)


def _value(text: str, at: int, value: str, pattern: re.Pattern[str] = WORD) -> str:
    spans = [match.span() for match in pattern.finditer(text)]
    if not spans:
        return value
    begin, end = spans[at % len(spans)]
    return text[:begin] + value + text[end:]


def _line(new: Callable[[str], str]) -> Callable[[str, int, str], str]:
    """An edit of one line."""

    def edit(text: str, at: int, _: str) -> str:
        lines = text.splitlines(keepends=True)
        place = at % max(1, len(lines))
        return "".join([*lines[:place], *map(new, lines[place : place + 1]), *lines[place + 1 :]])

    return edit


def _cut(text: str, at: int, _: str) -> str:
    return text[: at % max(1, len(text))]


def _inserted(text: str, at: int, value: str) -> str:
    place = at % max(1, len(text))
    return text[:place] + value + text[place:]


EDITS: Final[tuple[Callable[[str, int, str], str], ...]] = (
    *[_mild] * 20,
    *[_value] * 3,
    _line(lambda _: ""),
    _line(lambda line: 2 * line),
    _line(lambda line: f"  {line}"),
    _cut,
    _inserted,
)


@st.composite
def foreign(draw: st.DrawFn) -> Spoiled:
    """A verb on a file of which one to three places are others."""
    files = sources()
    name = draw(st.sampled_from(sorted(files)))
    content, verbs = files[name]
    try:
        text, encoding = content.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = content.decode("latin-1"), "latin-1"
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        edit = draw(st.sampled_from(EDITS))
        value = draw(st.sampled_from(VALUES))
        text = edit(text, draw(st.integers(0, 1 << 16)), value)
    whole = "surrogatepass" if encoding == "utf-8" else "replace"
    spoiled = text.encode(encoding, whole)
    if draw(st.integers(0, 19)) == 0:
        place = draw(st.integers(0, max(0, len(spoiled) - 1)))
        spoiled = spoiled[:place] + b"\xff\xfe" + spoiled[place:]
    return Spoiled(draw(st.sampled_from(verbs)), name, spoiled)
