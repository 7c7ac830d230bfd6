"""A launch script to the words of the commands it would run, without running any: variables, arrays
and simple tests are followed, and what cannot be known stays as it was written.

A variable that the script does not set (its own arguments, the scheduler's) stays `${NAME}`, and
whoever needs its value asks for it. Blocks that depend on such a value, and loops, are left out; a
remark says which, where they hold arguments. Nothing of the script is executed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from twin.errors import Problem, UsageError
from twin.interop.importing.shell_words import ARRAY, Operator, Token, Word, scan

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_EXPORTS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_FLAGS = re.compile(r"-[A-Za-z]+")
"""Of `declare -a` and its like."""
_SUBSTITUTION = re.compile(
    r"\$\(\((?P<sum>(?:[^()]|\([^()]*\))*)\)\)|\$\{(?P<name>\w+)(?P<rest>[^}]*(?:\{[^}]*\}[^}]*)*)\}"
    r"|\$(?P<bare>[A-Za-z_]\w*|[0-9@*])|(?P<command>\$\(.*\)|`[^`]*`)",
    re.DOTALL,
)
_DEFAULT = re.compile(r"(:?[-=+])(.*)", re.DOTALL)
_OPEN, _CLOSE = ("for", "while", "until", "case", "select"), ("done", "esac")
_NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
_SUMS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__,
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.Div: int.__floordiv__,
    ast.Mod: int.__mod__,
}

_LONGEST = 250_000
"""Characters of a script, which take some seconds; the longest public ones have ten thousand."""

Taken = Literal["yes", "done", "not yet", "unknown"]
"""Of a branch of `if`: it runs; one before it ran; none has so far; nobody knows."""


class _Whole(str):
    """A text that does not fall apart where it has spaces, because it was quoted."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Command:
    """The words of one command, each with its line."""

    words: tuple[tuple[str, int], ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The words alone."""
        return tuple(text for text, _ in self.words)


@dataclass(slots=True)
class Script:
    """What a script comes to."""

    defined: Mapping[str, str]
    """Values that whoever reads the script knows; they win over those of the script."""
    values: dict[str, str | list[tuple[str, int]]] = field(
        default_factory=dict[str, "str | list[tuple[str, int]]"]
    )
    commands: list[Command] = field(default_factory=list[Command])
    remarks: list[str] = field(default_factory=list[str])
    _branches: list[Taken] = field(default_factory=list["Taken"])
    _loops: int = 0

    def run(self, tokens: Sequence[Token]) -> None:
        """Follow the statements one by one."""
        statement: list[Token] = []
        depth = 0
        for token in [*tokens, Operator(0, "\n")]:
            if isinstance(token, Operator):
                depth += (token.text == ARRAY) - (token.text == ")" and depth > 0)
                if not depth and token.text not in (ARRAY, ")"):
                    self._statement(statement, token.text)
                    statement = [*statement, token] if _in_a_test(statement, token) else []
                    continue
            statement.append(token)

    def _statement(self, tokens: list[Token], end: str) -> None:
        words = [token for token in tokens if isinstance(token, Word)]
        if not words or _in_a_test(tokens, Operator(0, end)):
            return
        head = words[0].text
        if head in ("if", "elif"):
            self._branch(head, tokens[1:])
        elif head in ("else", "fi", "then"):
            self._turn(head)
            rest = tokens[1:]
            if rest:
                self._statement(rest, end)
        elif head in _OPEN or head in _CLOSE:
            self._loops = max(0, self._loops + (1 if head in _OPEN else -1))
        elif self._runs(words):
            self._perform(tokens)

    def _runs(self, words: Sequence[Word]) -> bool:
        """Whether a statement is reached; where nobody knows, its arguments are told."""
        if not self._loops and all(taken == "yes" for taken in self._branches):
            return True
        unknown = self._loops or ("unknown" in self._branches and "done" not in self._branches)
        options = [word.text for word in words if word.text.startswith("--")]
        if unknown and options:
            why = "a loop" if self._loops else "a condition that this file does not decide"
            self.remarks.append(
                f"Line {words[0].line} depends on {why}, and is left out: {' '.join(options)}."
            )
        return False

    def _branch(self, head: str, tokens: Sequence[Token]) -> None:
        outcome = self._test(tokens)
        now: Taken = "unknown" if outcome is None else "yes" if outcome else "not yet"
        if head == "if":
            self._branches.append(now)
        elif self._branches:
            before = self._branches[-1]
            self._branches[-1] = (
                now if before == "not yet" else "done" if before == "yes" else before
            )

    def _turn(self, head: str) -> None:
        if not self._branches or head == "then":
            return
        if head == "fi":
            self._branches.pop()
            return
        turned: dict[Taken, Taken] = {"yes": "done", "not yet": "yes"}
        self._branches[-1] = turned.get(self._branches[-1], self._branches[-1])

    def _test(self, tokens: Sequence[Token]) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        result: bool | None = None
        part: list[Word] = []
        joint = ""
        for token in [*tokens, Operator(0, "")]:
            if isinstance(token, Word):
                part.append(token)
                continue
            if part:
                one = self._holds([word for words in part for word in self.expand(words)])
                result = one if not joint else _joined(joint, result, one)
            joint, part = token.text, []
        return result

    def _holds(self, words: list[str]) -> bool | None:
        words = [word for word in words if word not in ("[", "[[", "]", "]]", "test")]
        if words[:1] == ["!"]:
            inner = self._holds(words[1:])
            return None if inner is None else not inner
        return None if any("$" in word for word in words) else _holds(words)

    def _perform(self, tokens: list[Token]) -> None:
        """An assignment, or a command with its words as they would be."""
        words = [token for token in tokens if isinstance(token, Word)]
        exported = False
        while words and (
            words[0].text in (*_EXPORTS, "{", "}", "do")
            or (exported and _FLAGS.fullmatch(words[0].text))
        ):
            exported = exported or words[0].text in _EXPORTS
            tokens = tokens[tokens.index(words[0]) + 1 :]
            words = words[1:]
        first = _ASSIGNMENT.fullmatch(words[0].text) if words else None
        if first and any(isinstance(one, Operator) and one.text == ARRAY for one in tokens):
            self._assign_array(first[1], bool(first[2]), words[1:])
            return
        while words and (found := _ASSIGNMENT.fullmatch(words[0].text)):
            self._assign(found[1], bool(found[2]), words.pop(0))
        if words:
            self.commands.append(Command(tuple(self._expanded(words))))

    def _expanded(self, words: Iterable[Word]) -> list[tuple[str, int]]:
        return [(text, word.line) for word in words for text in self.expand(word)]

    def _assign(self, name: str, more: bool, word: Word) -> None:
        if name in self.defined:
            return
        skip = len(name) + 1 + more
        value = Word(word.line, [*word.parts])
        while skip and value.parts:
            quote, text = value.parts[0]
            value.parts[0] = (quote, text[skip:])
            skip = max(0, skip - len(text))
            if not value.parts[0][1]:
                value.parts.pop(0)
        text = "".join(self.scalar(piece, quote) for quote, piece in value.parts)
        before = self.values.get(name, "") if more else ""
        self.values[name] = (before if isinstance(before, str) else "") + text

    def _assign_array(self, name: str, more: bool, words: Sequence[Word]) -> None:
        before = self.values.get(name, []) if more else []
        held = before if isinstance(before, list) else [(before, 0)]
        self.values[name] = [*held, *self._expanded(words)]

    def scalar(self, text: str, quote: str) -> str:
        """A piece of a word with its variables replaced, as one text."""
        if quote == "single":
            return text
        return _SUBSTITUTION.sub(lambda found: " ".join(_texts(self.value(found))), text)

    def expand(self, word: Word) -> list[str]:
        """What a word becomes: one word, several or none."""
        fields: list[str] = []
        glue = False  # whether what comes next belongs to the last field
        for quote, text in word.parts:
            if quote == "single":
                glue = _append(fields, [text], glue)
                continue
            if not text:  # `""`, which is a word
                glue = _append(fields, [""], glue)
            at = 0
            for found in _SUBSTITUTION.finditer(text):
                glue = _literal(fields, text[at : found.start()], glue)
                values = _texts(self.value(found))
                if quote == "none":
                    glue = _split(fields, values, glue)
                elif values:
                    glue = _append(fields, values, glue)
                at = found.end()
            glue = _literal(fields, text[at:], glue)
        return [str(one) for one in fields]

    def value(self, found: re.Match[str]) -> str | list[str]:
        """What a substitution stands for; itself where that is not known."""
        name = found["name"] or found["bare"]
        if found["sum"] is not None:
            return self._sum(found["sum"]) or found.group()
        if name is None:
            return found.group()
        return [] if name in "@*" else self._variable(name, found["rest"] or "")

    def _variable(self, name: str, rest: str) -> str | list[str]:
        known = self.defined.get(name, self.values.get(name))
        default = _DEFAULT.fullmatch(rest)
        if default is None:
            if known is None or rest not in ("[@]", "[*]", ""):
                return f"${{{name}{rest}}}"
            return known if isinstance(known, str) else [text for text, _ in known]
        quoted = default[2][:1] in ('"', "'")
        other = self.scalar(default[2].strip("\"'"), "double")
        other = _Whole(other) if quoted else other
        if default[1].endswith("+"):
            return other if known else ""
        if isinstance(known, str) and known:
            return known
        if default[1].endswith("="):
            self.values[name] = other
        return other

    def _sum(self, text: str) -> str | None:
        """The value of an arithmetic expression over whole numbers."""
        plain = re.sub(r"\$\{?(\w+)\}?", r"\1", text)
        names = re.sub(r"[A-Za-z_]\w*", lambda one: self._known(one.group()), plain)
        try:
            tree = ast.parse(names.strip(), mode="eval")
            return str(_summed(tree.body))
        except (SyntaxError, ValueError, ZeroDivisionError):
            return None

    def _known(self, name: str) -> str:
        known = self.defined.get(name, self.values.get(name, "?"))
        return known if isinstance(known, str) else "?"


def follow(text: str, defined: Mapping[str, str], *, plain: bool = False) -> Script:
    """The commands of a script; a `plain` text is one command. Raises `UsageError` for what is
    too long to be a script."""
    if len(text) > _LONGEST:
        message = f"more than {_LONGEST:,} characters: no launch script is as long"
        raise UsageError([Problem("TW002", "", message, "give the script that launches")])
    script = Script(defined)
    script.run(scan(text, plain=plain))
    return script


def _holds(words: list[str]) -> bool | None:
    """Whether a test of known words holds; None for one that is not understood."""
    result: bool | None = None
    match words:
        case ["-n" | "-z" as sign, *rest] if len(rest) < 2:
            result = any(rest) == (sign == "-n")
        case [left, "=" | "==", right]:
            result = left == right
        case [left, "!=", right]:
            result = left != right
        case [left, sign, right] if sign in _NUMBERS and _whole(left) and _whole(right):
            result = _NUMBERS[sign](int(left), int(right))
        case _:
            pass
    return result


def _in_a_test(tokens: Sequence[Token], end: Operator) -> bool:
    """Whether an operator stands inside of an `if`'s condition, which goes on behind it."""
    head = tokens[0] if tokens else None
    return isinstance(head, Word) and head.text in ("if", "elif") and end.text in ("&&", "||")


def _joined(joint: str, one: bool | None, other: bool | None) -> bool | None:
    decides = joint == "||"
    if decides in (one, other) and joint in ("&&", "||"):
        return decides
    return None if None in (one, other) else not decides


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _literal(fields: list[str], text: str, glue: bool) -> bool:
    return _append(fields, [text], glue) if text else glue


def _append(fields: list[str], texts: Sequence[str], glue: bool) -> bool:
    first, *rest = texts
    if glue and fields:
        fields[-1] += first
    else:
        fields.append(first)
    fields.extend(rest)
    return True


def _split(fields: list[str], values: Sequence[str], glue: bool) -> bool:
    """Values without quotes around them, which fall apart where they have spaces; one that is not
    known stays whole."""
    pieces = [
        piece
        for value in values
        for piece in ([value] if isinstance(value, _Whole) or value[:1] == "$" else value.split())
    ]
    return _append(fields, pieces, glue) if pieces else glue


def _whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d+", text) is not None


def _summed(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_summed(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SUMS:
            return _SUMS[type(sign)](_summed(left), _summed(right))
        case _:
            raise ValueError(ast.dump(node))
