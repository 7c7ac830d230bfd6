"""Rephrase a text in a style, and keep its facts.

Words are replaced by synonyms, a clause or a year moves within a sentence, and each sentence gets a
frame of its style. The text before (between `<before>` marks, or the word `context`) avoids
repeated words and frames. Possible facts stay: names and other words with a capital inside a
sentence, numbers and the words beside them, quotations, code, and words outside of the tables. It
shows that a pipeline works, not what a language model would write. OURS: tables and rules.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Final

from reference.files import yaml_table
from reference.generate.rules import Skill, SkillAnswer, SkillTask
from reference.text.documents import sentences
from twin.errors import Problem, UsageError

_TABLES: Final = yaml_table(Path(__file__).with_suffix(".yaml"))
FRAMES: Final[dict[str, list[str]]] = _TABLES["frames"]
"""Sentences by style: `{s}` as it is, `{l}` with a small first letter."""
_NOTES: Final = "learning-note"
_SYNONYMS: Final = {
    word: tuple(other for other in group if other != word)
    for group in _TABLES["synonyms"]
    for word in group
}
_NO_NAMES: Final = frozenset(_TABLES["no_names"].split())
_PARTS: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|\w+(?:['’.\-]\w+)*|\s+|[^\w\s]")
_FRONT: Final = re.compile(
    r"^((?:Although|Because|Since|While|When|After|Before|If)\b[^,;:]*), ((?:the|a|an) [^,;:]*)\.$"
)
"""A clause before a rest that begins with an article, not a pronoun."""
_YEAR: Final = re.compile(r"^([^,;:?!-]+) (in \d{4})\.$")
_BEFORE: Final = re.compile(r"<before>\n(.*)\n</before>\n", re.DOTALL)
_PASSAGE: Final = re.compile(r"<passage>\n(.*)\n</passage>\s*\Z", re.DOTALL)


def passage_of(task: SkillTask) -> str:
    """The text between `<passage>` marks, or the user's whole last message."""
    found = _PASSAGE.search(task.text)
    return found[1] if found else task.text


def rephrase(text: str, style: str, context: str, draw: random.Random) -> str:
    """The text in other words; paragraphs, and the number and order of sentences, stay."""
    paragraphs: list[str] = []
    for paragraph in re.split(r"(\n\s*\n)", text):
        if not paragraph.strip():
            paragraphs.append(paragraph)
            continue
        written: list[str] = []
        for sentence in sentences(paragraph):
            before = " ".join([context, *paragraphs, *written])[-400:]
            written.append(_sentence(sentence, style, before, draw))
        if style == _NOTES:
            written = [f"- {_label(text, at)}: {text}" for at, text in enumerate(written)]
        paragraphs.append(("\n" if style == _NOTES else " ").join(written))
    return "".join(paragraphs)


def _label(sentence: str, at: int) -> str:
    """The role of a sentence in a solution."""
    if sentence.startswith(("Therefore", "So ")):
        return "result"
    return "step" if "=" in sentence else "note" if at else "given"


def _sentence(sentence: str, style: str, before: str, draw: random.Random) -> str:
    turned = _turned(sentence) if draw.random() < 0.7 else sentence
    parts = _PARTS.findall(turned)
    said = "".join(_part(parts, at, before, draw) for at in range(len(parts)))
    fresh = [frame for frame in FRAMES[style] if frame.partition("{")[0] not in before]
    frames = [frame for frame in FRAMES[style] if frame == "{s}" or frame in fresh]
    return draw.choice(frames or FRAMES[style]).format(s=said, l=_lowered(said, parts))


def _lowered(said: str, parts: list[str]) -> str:
    """With a small first letter, unless the first word may be a name."""
    known = bool(parts) and (parts[0].lower() in _NO_NAMES or parts[0].lower() in _SYNONYMS)
    return f"{said[0].lower()}{said[1:]}" if known else said


def _turned(sentence: str) -> str:
    """With a final year moved to the front, or a front clause moved to the end."""
    year = _YEAR.match(sentence)
    if year:
        rest, when = year.groups()
        first = rest.split()[0].lower() in _NO_NAMES
        return f"I{when[1:]}, {rest[0].lower() if first else rest[0]}{rest[1:]}."
    clause = _FRONT.match(sentence)
    if clause:
        front, rest = clause.groups()
        return f"{rest[0].upper()}{rest[1:]} {front[0].lower()}{front[1:]}."
    return sentence


def _part(parts: list[str], at: int, before: str, draw: random.Random) -> str:
    word = parts[at]
    others = _SYNONYMS.get(word.lower(), ())
    inside = at > 0 and word != word.lower()
    if not others or inside or _beside_number(parts, at):
        return word
    fresh = [other for other in others if other not in before] or others
    found = draw.choice((word.lower(), *fresh))
    return found.capitalize() if word[0].isupper() else found


def _beside_number(parts: list[str], at: int) -> bool:
    near = [parts[place] for place in (at - 2, at + 2) if 0 <= place < len(parts)]
    return any(character.isdigit() for word in near for character in word)


def _answer(task: SkillTask) -> SkillAnswer:
    style = str(task.words.get("style", "plain"))
    if style not in FRAMES:
        wrong = f"the rules cannot write the style `{style}`"
        hint = f"one of {', '.join(FRAMES)}; or a generator with a language model"
        raise UsageError([Problem("TW475", "style", wrong, hint)])
    before = _BEFORE.search(task.text)
    context = str(task.words.get("context", before[1] if before else ""))
    return SkillAnswer(rephrase(passage_of(task), style, context, task.draw))


SKILLS = (
    Skill(
        "rephrase",
        f"The user's last turn in other words; `style` ({', '.join(FRAMES)}), `context` (what was "
        "written before).",
        _answer,
    ),
)
