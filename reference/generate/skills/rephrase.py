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
from typing import Final

from reference.generate.rules import Skill, SkillAnswer, SkillTask
from reference.text.sentences import sentences
from twin.errors import Problem, UsageError

FRAMES: Final[dict[str, tuple[str, ...]]] = {
    "plain": ("{s}", "In short, {l}", "Put simply, {l}"),
    "wikipedia": ("{s}", "As is recorded, {l}"),
    "questions": ("What is said here? {s}", "What else? {s}", "What do we learn? {s}"),
    "lecture": ("Note that {l}", "Remember: {s}", "We see that {l}"),
    "reporter": ("It is reported that {l}", "The record says: {s}"),
    "sceptic": ("We may check that {l}", "It holds that {l}"),
    "learning-note": ("{s}",),
    "summary-first": ("{s}", "In detail: {s}"),
    "letter": ("As you may know, {l}", "Let me tell you: {s}"),
    "recap": ("As far as one recalls, {l}", "To repeat: {s}"),
}
"""Sentences by style: `{s}` as it stands, `{l}` with a small first letter."""
_NOTES: Final = "learning-note"
_GROUPS: Final = """
big large | small little | quickly rapidly swiftly | slowly gradually | begins starts
began started | begin start | ends finishes concludes | ended finished concluded
shows demonstrates reveals | showed demonstrated revealed | uses employs | used employed
helps aids assists | helped aided assisted | builds constructs | built constructed
gets obtains acquires | got obtained acquired | needs requires | needed required
often frequently | usually normally generally | important significant notable | many numerous
also likewise | but yet | because since | although though | near close_to | about roughly
people persons | method approach technique | result outcome | results outcomes | answer reply
problem difficulty | problems difficulties | whole entire | main principal chief
famous renowned well_known | difficult hard | easy simple | lives resides
founded established set_up | makes produces | called named | returns gives_back | gives yields
therefore so | compute work_out
"""
"""Words of one form that stand for each other in most sentences."""
_OTHERS: Final = {
    word.replace("_", " "): tuple(one.replace("_", " ") for one in words if one != word)
    for group in re.split(r"[|\n]", _GROUPS)
    for words in [group.split()]
    for word in words
}
_SMALL: Final = """
the a an this that these those it its he she they we you in on at by for from of with as to there
then when while after before if so although because since each every all some both two one first
"""
"""Words that begin a sentence with a capital and are no names."""
_PARTS: Final = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|\w+(?:['’.\-]\w+)*|\s+|[^\w\s]")
_FRONT: Final = re.compile(
    r"^((?:Although|Because|Since|While|When|After|Before|If)\b[^,;:]*), ((?:the|a|an) [^,;:]*)\.$"
)
"""A clause before a rest that begins with no pronoun, which would come before what it means."""
_YEAR: Final = re.compile(r"^([^,;:?!-]+) (in \d{4})\.$")
_BEFORE: Final = re.compile(r"<before>\n(.*)\n</before>\n", re.DOTALL)
_PASSAGE: Final = re.compile(r"<passage>\n(.*)\n</passage>\s*\Z", re.DOTALL)


def passage_of(task: SkillTask) -> str:
    """The text between `<passage>` marks; all of the user's last turn without them."""
    found = _PASSAGE.search(task.text)
    return found[1] if found else task.text


def rephrase(text: str, style: str, context: str, draw: random.Random) -> str:
    """The text in other words; paragraphs stay apart, no sentence is left out or changes place."""
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
            written = [f"- {_label(one, at)}: {one}" for at, one in enumerate(written)]
        paragraphs.append(("\n" if style == _NOTES else " ").join(written))
    return "".join(paragraphs)


def _label(sentence: str, at: int) -> str:
    """What a sentence is in a solution."""
    if sentence.startswith(("Therefore", "So ")):
        return "result"
    return "step" if "=" in sentence else "note" if at else "given"


def _sentence(sentence: str, style: str, before: str, draw: random.Random) -> str:
    turned = _turned(sentence) if draw.random() < 0.7 else sentence
    parts = _PARTS.findall(turned)
    said = "".join(_part(parts, at, before, draw) for at in range(len(parts)))
    frames = [one for one in FRAMES[style] if one == "{s}" or one[: one.index("{")] not in before]
    return draw.choice(frames or FRAMES[style]).format(s=said, l=_lowered(said, parts))


def _lowered(said: str, parts: list[str]) -> str:
    """With a small first letter, unless the first word may be a name."""
    known = bool(parts) and (parts[0].lower() in _SMALL.split() or parts[0].lower() in _OTHERS)
    return f"{said[0].lower()}{said[1:]}" if known else said


def _turned(sentence: str) -> str:
    """With a year at its end put to the front, or the clause at the front put behind the rest."""
    year = _YEAR.match(sentence)
    if year:
        rest, when = year.groups()
        first = rest.split()[0].lower() in _SMALL.split()
        return f"I{when[1:]}, {rest[0].lower() if first else rest[0]}{rest[1:]}."
    clause = _FRONT.match(sentence)
    if clause:
        front, rest = clause.groups()
        return f"{rest[0].upper()}{rest[1:]} {front[0].lower()}{front[1:]}."
    return sentence


def _part(parts: list[str], at: int, before: str, draw: random.Random) -> str:
    word = parts[at]
    others = _OTHERS.get(word.lower(), ())
    inside = at > 0 and word != word.lower()
    if not others or inside or _beside_number(parts, at):
        return word
    fresh = [one for one in others if one not in before] or others
    found = draw.choice((word.lower(), *fresh))
    return found.capitalize() if word[0].isupper() else found


def _beside_number(parts: list[str], at: int) -> bool:
    near = [parts[one] for one in (at - 2, at + 2) if 0 <= one < len(parts)]
    return any(any(character.isdigit() for character in one) for one in near)


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
