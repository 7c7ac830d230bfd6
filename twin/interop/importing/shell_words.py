"""Shell text to words and operators, with the line of each: quotes, comments, continued lines,
arrays, here-documents. What words stand for is `twin.interop.importing.shell`'s to find
out.

The part of bash's grammar (Bash Reference Manual, section 3.1) that launch scripts use. Left out:
`case` patterns, process substitution, brace expansion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Quote = Literal["none", "double", "single"]

ARRAY = "=("
"""The operator behind the name of an array that opens."""
_OPERATOR = re.compile(r"&&|\|\||;;|[;&|()\n]")
_REDIRECT = re.compile(r"&?(?:>>|>\||<<<|<>|>|<)&?[ \t]*[\w./$\"'{}:-]*")
_HEREDOC = re.compile(r"<<-?[ \t]*[\"']?(\w+)[\"']?")
_NAME_BEFORE_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=$")
_CONTINUED = re.compile(r"\\[ \t]*\n")
_CLOSING = {"((": "))", "{": "}", "(": ")"}


@dataclass(slots=True)
class Word:
    """One word as it was written: pieces with the quotes around them."""

    line: int
    parts: list[tuple[Quote, str]] = field(default_factory=list[tuple[Quote, str]])

    @property
    def text(self) -> str:
        """The word without its quotes, nothing in it replaced."""
        return "".join(text for _, text in self.parts)


@dataclass(frozen=True, slots=True)
class Operator:
    """What stands between words: `;`, a new line, a bracket."""

    line: int
    text: str


Token: TypeAlias = Word | Operator


@dataclass(slots=True)
class _Scanner:
    """A place in a text, and the word that is being read."""

    text: str
    plain: bool
    at: int = 0
    word: Word | None = None
    here: list[str] = field(default_factory=list[str])
    """Ends of here-documents that begin on the next line."""

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def add(self, quote: Quote, text: str) -> None:
        if self.word is None:
            self.word = Word(self.line)
        self.word.parts.append((quote, text))

    def taken(self) -> Iterator[Word]:
        """The word read so far, which ends here."""
        if self.word is not None:
            yield self.word
            self.word = None

    def until(self, end: str, start: int) -> int:
        """Where `end` stands from `start` on; behind the text where it never comes."""
        found = self.text.find(end, start)
        return len(self.text) if found < 0 else found


def scan(text: str, *, plain: bool = False) -> list[Token]:
    """The words and operators of a text. In a `plain` one, a list of arguments, only quotes,
    comments and ends of lines mean anything."""
    scanner = _Scanner(text, plain)
    found: list[Token] = []
    while scanner.at < len(text):
        found += _step(scanner)
    return [*found, *scanner.taken()]


def _step(scanner: _Scanner) -> Iterator[Token]:
    """Read on by one character, quote, substitution or operator."""
    text, at = scanner.text, scanner.at
    one = text[at]
    if continued := _CONTINUED.match(text, at):
        scanner.at = continued.end()
        yield from scanner.taken()
    elif one == "\\":
        scanner.add("single", text[at + 1 : at + 2])
        scanner.at += 2
    elif one == "'":
        end = scanner.until("'", at + 1)
        scanner.add("single", text[at + 1 : end])
        scanner.at = end + 1
    elif one == '"':
        _double(scanner)
    elif one == "#" and scanner.word is None:
        scanner.at = scanner.until("\n", at)
    elif one in " \t":
        yield from scanner.taken()
        scanner.at += 1
    elif scanner.plain:
        yield from _plain(scanner)
    else:
        yield from _special(scanner)


def _plain(scanner: _Scanner) -> Iterator[Token]:
    one = scanner.text[scanner.at]
    if one == "\n":
        yield from scanner.taken()
    else:
        scanner.add("none", one)
    scanner.at += 1


def _special(scanner: _Scanner) -> Iterator[Token]:
    """What only a shell knows: substitutions, arrays, operators, redirections."""
    text, at = scanner.text, scanner.at
    one = text[at]
    if one in "$`":
        end = _substitution_end(text, at)
        scanner.add("none", text[at:end])
        scanner.at = end
    elif one in "<>" or _REDIRECT.match(text, at):
        _redirect(scanner)
    elif one == "(" and scanner.word and _NAME_BEFORE_ARRAY.search(scanner.word.text):
        yield from scanner.taken()
        yield Operator(scanner.line, ARRAY)
        scanner.at += 1
    elif operator := _OPERATOR.match(text, at):
        yield from scanner.taken()
        yield Operator(scanner.line, operator.group())
        scanner.at = operator.end()
        if one == "\n":
            _skip_documents(scanner)
    else:
        scanner.add("none", one)
        scanner.at += 1


def _double(scanner: _Scanner) -> None:
    """A text in double quotes, in which `$` still means something."""
    text, at = scanner.text, scanner.at + 1
    pieces: list[str] = []
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "\n"):
            pieces.append("" if text[at + 1] == "\n" else text[at + 1])
            at += 2
        elif text[at] == "\\" and text[at + 1 : at + 2] == "$":
            scanner.add("double", "".join(pieces))
            scanner.add("single", "$")
            pieces, at = [], at + 2
        elif text[at] in "$`":
            end = _substitution_end(text, at)
            pieces.append(text[at:end])
            at = end
        else:
            pieces.append(text[at])
            at += 1
    scanner.add("double", "".join(pieces))
    scanner.at = at + 1


def _substitution_end(text: str, at: int) -> int:
    """Where what begins with `$` or a backquote at `at` ends."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        return len(text) if end < 0 else end + 1
    opening = "((" if text[at + 1 : at + 3] == "((" else text[at + 1 : at + 2]
    if opening not in _CLOSING:
        name = re.compile(r"\w+|[@*#?$!-]").match(text, at + 1)
        return name.end() if name and not text[at + 1].isdigit() else min(at + 2, len(text))
    first, depth, place = opening[0], len(opening), at + 1 + len(opening)
    last = _CLOSING[opening][0]
    while place < len(text) and depth:
        depth += (text[place] == first) - (text[place] == last)
        place += 1
    return place


def _redirect(scanner: _Scanner) -> None:
    """Pass over where output goes; a number before it is the stream's."""
    if scanner.word and scanner.word.text.isdigit():
        scanner.word = None
    text, at = scanner.text, scanner.at
    if document := _HEREDOC.match(text, at):
        scanner.here.append(document[1])
        scanner.at = document.end()
        return
    found = _REDIRECT.match(text, at)
    scanner.at = found.end() if found else at + 1


def _skip_documents(scanner: _Scanner) -> None:
    """Pass over here-documents, which are no arguments."""
    for end in scanner.here:
        close = re.compile(rf"^\t*{re.escape(end)}[ \t]*$", re.MULTILINE)
        found = close.search(scanner.text, scanner.at)
        scanner.at = found.end() if found else len(scanner.text)
    scanner.here.clear()
