"""Dialogues from JSONL files, one per line, as ids with loss masks.

    {"id", "messages", "tools", "learned": [bool per message], "provenance": {"split": ...}}

`messages` and `tools` are in OpenAI's form (`reference.dialog`). Without `learned` all messages of
the assistant are; a message of anybody else never is. Lines whose split is `held_out` judge, others
train. Further keys are left alone.

A dialogue is rendered in Kimi K2's template, markers as ids of their own behind the tokenizer's.
Learned is what `reference.text.template.weighed` says a model is trained to say, of the
messages that a line of the file marks as learned.

Dialogues in rows of equal length, for ever, in a new order each epoch.

OURS, since K2's report does not say. Whole dialogues lie in a row, each with an end of document
behind it, as many as fit (`shared`) or one (`alone`), in the order of the epoch. What is left of a
row is filled with the beginnings of those that come next, of which nothing is learned there: so
every dialogue is learned once an epoch, and experts see no tokens but those of dialogues. Attention
is causal and not masked between dialogues, as in pre-training (`reference.text.loader`): under
`shared` a dialogue sees those before it in its row; under `alone` it sees itself only, since what
fills the row stands behind it.

Legend: N tokens, D dialogues, B batch, T tokens of a sequence.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from reference.dialog import Dialog, dialog_of
from reference.text.loader import IGNORED, Batch, ResumableLoader
from reference.text.packing import Tokens, numbered
from reference.text.prepare import Prepared
from reference.text.spec import DialogsSpec
from reference.text.template import END, Segment, special_tokens, weighed
from reference.text.tokenizer import Tokenizer, Vocabulary
from twin.errors import Problem, UsageError

Packing = Literal["shared", "alone"]
Row = tuple[int, int]
"""The place in the epoch's order of a row's first dialogue, and how many it has."""


@dataclass(frozen=True)
class DialogTokens:
    """Dialogues as ids, each with the end of a document behind it."""

    tokens: Tokens
    learned_N: NDArray[np.bool_]
    """Which ids the model is trained to say."""
    text: str = ""
    """Tells the tokens of the text that gave the tokenizer from others."""

    def __len__(self) -> int:
        return len(self.tokens.ends_D)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Ids of each, without its end, [D]."""
        return np.diff(self.tokens.ends_D, prepend=0) - 1

    def targets(self, dialogue: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Its ids, with its end, and the same with `IGNORED` in the place of what is not
        learned."""
        end = int(self.tokens.ends_D[dialogue])
        start = int(self.tokens.ends_D[dialogue - 1]) if dialogue else 0
        ids = self.tokens.ids_N[start:end].astype(np.int64)
        return ids, np.where(self.learned_N[start:end], ids, IGNORED)


@dataclass(frozen=True)
class Epoch:
    """One order of the dialogues, cut into rows of T + 1 ids, so that T are predicted."""

    dialogues: DialogTokens
    order_D: NDArray[np.int64]
    rows: tuple[Row, ...]
    sequence: int

    def batch(self, first: int, count: int) -> Batch:
        """Tokens and targets, [B, T], of some rows."""
        made = [self._row(*self.rows[place]) for place in range(first, first + count)]
        tokens_BT = np.stack([ids[:-1] for ids, _ in made])
        targets_BT = np.stack([wanted[1:] for _, wanted in made])
        return torch.from_numpy(tokens_BT), torch.from_numpy(targets_BT)

    def _row(self, first: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        width = self.sequence + 1
        ids, wanted = np.zeros((2, 0), dtype=np.int64)
        place = first
        while len(ids) < width:
            dialogue = int(self.order_D[place % len(self.order_D)])
            own, targets = self.dialogues.targets(dialogue)
            if place >= first + count:
                targets = np.full_like(targets, IGNORED)
            ids, wanted = np.concatenate([ids, own]), np.concatenate([wanted, targets])
            place += 1
        return ids[:width], wanted[:width]


def epoch_of(
    dialogues: DialogTokens, seed: int, epoch: int, sequence: int, packing: Packing
) -> Epoch:
    """The epoch's order, which depends on seed and epoch alone, and its rows."""
    order_D = np.argsort(numbered(seed, epoch, len(dialogues)), kind="stable")
    lengths = dialogues.lengths[order_D].tolist()
    rows: list[Row] = []
    place = 0
    while place < len(lengths):
        first, room = place, sequence + 1
        while place < len(lengths) and lengths[place] <= room:
            room -= lengths[place] + 1
            place += 1
            if packing == "alone":
                break
        if place == first:
            raise ValueError(f"a dialogue of {lengths[first]} ids in rows of {sequence + 1}")
        rows.append((first, place - first))
    return Epoch(dialogues, order_D, tuple(rows), sequence)


class DialogLoader(ResumableLoader):
    """Batches of dialogues; its `base` is an epoch. Raises UsageError TW606 where there are none to
    learn."""

    reads = ("dialogs", "dialogues or tokenizer")

    def __init__(
        self,
        dialogues: DialogTokens,
        packing: Packing,
        shape: tuple[int, int],
        seed: int,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        if not len(dialogues):
            message = "no dialogue is left to learn from"
            fix = "longer sequences (`train.sequence`), or `dialogs.too_long: cut`"
            raise UsageError([Problem("TW606", "dialogs.source", message, fix)])
        super().__init__(shape, seed, *place)
        self.dialogues = dialogues
        self.packing: Packing = packing
        self._epochs = lru_cache(maxsize=2)(self._made)
        self._firsts = [0]
        """The number of each epoch's first row, as far as they were needed."""

    @property
    def digests(self) -> dict[str, str]:
        """Of the dialogues, and of the text that gave the tokenizer."""
        return {"tokens": self.dialogues.tokens.digest, "text": self.dialogues.text}

    def __next__(self) -> Batch:
        rows = [self._row(number) for number in self.own_places()]
        return torch.cat([row[0] for row in rows]), torch.cat([row[1] for row in rows])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As of every loader; what belongs to another place in the epochs is forgotten."""
        super().load_state_dict(state)
        self._epochs.cache_clear()
        self._firsts = [0]

    def with_sequences(self, sequence: int, micro_batch: int) -> DialogLoader:
        """A loader that goes on from here: with the next row, or with the next epoch if sequences
        have another length."""
        shape, place = (sequence, micro_batch), (self.rank, self.world)
        loader = DialogLoader(self.dialogues, self.packing, shape, self.seed, place)
        loader.base, loader.taken = self.base, self.taken
        if sequence != self.sequence:
            loader.base = self.base + (self._epoch(self.taken - 1) + 1 if self.taken else 0)
            loader.taken = 0
        return loader

    def _row(self, number: int) -> Batch:
        epoch = self._epoch(number)
        return self._epochs(epoch).batch(number - self._firsts[epoch], 1)

    def _epoch(self, number: int) -> int:
        """Which epoch since `base` has the row of this number."""
        while self._firsts[-1] <= number:
            rows = len(self._epochs(len(self._firsts) - 1).rows)
            self._firsts.append(self._firsts[-1] + rows)
        return int(np.searchsorted(self._firsts, number, side="right")) - 1

    def _made(self, epoch: int) -> Epoch:
        return epoch_of(self.dialogues, self.seed, self.base + epoch, self.sequence, self.packing)


HELD_OUT: Final = "held_out"
_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_SHOWN: Final = 4
"""Wrong lines named in one message."""


@dataclass(frozen=True, slots=True)
class TrainingDialog:
    """A dialogue, and which of its messages are to be learned."""

    dialog: Dialog
    learned: tuple[bool, ...]
    held_out: bool


def read_examples(sources: Sequence[str]) -> list[TrainingDialog]:
    """All dialogues of the files, in order. Raises UsageError TW600 for a file that cannot be read,
    TW601 with the first lines that are no dialogues."""
    found: list[TrainingDialog] = []
    wrong: list[Problem] = []
    for source in sources:
        for number, line in _lines(Path(source).expanduser()):
            try:
                found.append(_example(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                wrong.append(_refused(f"{source}:{number}", error))
            if len(wrong) == _SHOWN:
                raise UsageError(wrong)
    if wrong:
        raise UsageError(wrong)
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that hold anything, numbered from 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        message = f"cannot read `{path}`: {(why or str(error)).lower()}"
        fix = "`python -m reference.agentic` writes such files"
        raise UsageError([Problem("TW600", "dialogs.source", message, fix)]) from None
    rows = enumerate(text.splitlines(), start=1)
    return ((number, line) for number, line in rows if line.strip())


def _example(row: Mapping[str, Any]) -> TrainingDialog:
    dialog = dialog_of(row)
    strange = {message.role for message in dialog.messages} - _ROLES
    if strange:
        raise ValueError(f"nobody is called `{min(strange)}`")
    said = [message.role == "assistant" for message in dialog.messages]
    given = row.get("learned", said)
    if len(given) != len(said) or not all(isinstance(one, bool) for one in given):
        raise ValueError(f"`learned` has not one true or false for each of {len(said)} messages")
    learned = tuple(wanted and own for wanted, own in zip(given, said, strict=True))
    held_out = (row.get("provenance") or {}).get("split") == HELD_OUT
    return TrainingDialog(dialog, learned, held_out)


def _refused(where: str, error: Exception) -> Problem:
    why = f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else str(error)
    fix = "a line is an object with `messages` and `tools` in OpenAI's form"
    return Problem("TW601", "dialogs.source", f"{where} is no dialogue: {why}", fix)


@dataclass(frozen=True, slots=True)
class Masked:
    """The ids of a dialogue, and which of them are learned."""

    ids_N: NDArray[np.uint32]
    learned_N: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DialogFacts:
    """What became of the dialogues."""

    training: int
    held_out: int
    learned: int
    """Ids that training predicts in an epoch."""
    ids: int
    """Of the training dialogues."""
    left_out: int
    """Longer than a sequence."""
    cut: int
    """Shortened to one."""
    silent: int
    """With nothing to learn."""

    def __str__(self) -> str:
        return (
            f"{self.training:,} dialogues to learn from, {self.held_out:,} held out; "
            f"{self.learned:,} of {self.ids:,} tokens are learned; too long: "
            f"{self.left_out:,} left out, {self.cut:,} cut; {self.silent:,} with nothing to learn"
        )


@dataclass(frozen=True)
class PreparedDialogs:
    """The dialogues of a run, in the place of `reference.text.prepare.Prepared`."""

    facts: DialogFacts
    tokenizer: Tokenizer
    spec: DialogsSpec
    training: DialogTokens
    held_out_dialogs: DialogTokens

    def loader(
        self, shape: tuple[int, int], seed: int, place: tuple[int, int] = (0, 1)
    ) -> DialogLoader:
        """Batches of `shape`, sequence and rows, for a rank and how many there are."""
        return DialogLoader(self.training, self.spec.packing, shape, seed, place)

    def held_out(self, sequence: int, rows: int = 8) -> Iterator[Batch]:
        """Batches of at most `rows` sequences in which each held-out dialogue is judged once, in
        the order of a hash."""
        if not len(self.held_out_dialogs):
            return
        epoch = epoch_of(self.held_out_dialogs, 0, 0, sequence, self.spec.packing)
        for first in range(0, len(epoch.rows), rows):
            yield epoch.batch(first, min(rows, len(epoch.rows) - first))

    def bytes_of(self, targets: torch.Tensor) -> int:
        """Bytes of text that targets stand for; markers and what is ignored have none."""
        ids = targets[(targets >= 0) & (targets < self.tokenizer.vocabulary)].numpy(force=True)
        return int(self.tokenizer.token_bytes[ids].sum())


def prepare_dialogs(
    spec: DialogsSpec, text: Prepared, vocabulary: int, sequence: int
) -> PreparedDialogs:
    """The dialogues of the files as ids, none longer than `sequence` and the id it predicts last.

    Raises UsageError TW605 where the model has no ids to spare for the markers, and what
    `read_examples` does.
    """
    words = Vocabulary(text.tokenizer, vocabulary)
    if not words.markers:
        count = len(special_tokens())
        message = f"{vocabulary:,} ids leave no {count} for the template's markers"
        fix = f"pre-train with `data.tokenizer.vocab: {vocabulary - count}`"
        raise UsageError([Problem("TW605", "data.tokenizer.vocab", message, fix)])
    examples = read_examples(spec.source)
    sides: tuple[list[Masked], list[Masked]] = ([], [])
    counts = Counter(left_out=0, cut=0, silent=0)
    for example, whole in zip(examples, masked(examples, words), strict=True):
        long = len(whole.ids_N) > sequence + 1
        fits = Masked(whole.ids_N[: sequence + 1], whole.learned_N[: sequence + 1])
        if long and spec.too_long == "leave_out":
            counts["left_out"] += 1
        elif not fits.learned_N.any():
            counts["silent"] += 1
        else:
            counts["cut"] += long
            sides[example.held_out].append(fits)
    training, held_out = (_side(side, text) for side in sides)
    facts = DialogFacts(
        training=len(training),
        held_out=len(held_out),
        learned=int(training.learned_N.sum()),
        ids=len(training.tokens),
        **counts,
    )
    return PreparedDialogs(facts, text.tokenizer, spec, training, held_out)


def masked(examples: Sequence[TrainingDialog], words: Vocabulary) -> Iterator[Masked]:
    """Each dialogue's ids, and which of them are learned."""
    parts = [list(_parts(example)) for example in examples]
    # A tokenizer reads itself anew for each list of texts.
    texts = sorted({part.text for row in parts for part, _ in row if not part.marker})
    known = dict(zip(texts, words.tokenizer.encode(texts), strict=True))
    for row in parts:
        own = [[words.markers[part.text]] if part.marker else known[part.text] for part, _ in row]
        learned_N = np.repeat([wanted for _, wanted in row], [len(ids) for ids in own])
        yield Masked(np.concatenate(own, dtype=np.uint32, casting="unsafe"), learned_N)


def _parts(example: TrainingDialog) -> Iterator[tuple[Segment, bool]]:
    """Markers and texts of a dialogue, and whether each is learned."""
    allowed = iter([*[False] * bool(example.dialog.tools), *example.learned])
    wanted = next(allowed, False)
    for part in weighed(example.dialog):
        yield part.segment, part.learned and wanted
        if part.segment.marker and part.segment.text == END:
            wanted = next(allowed, False)


def _side(dialogues: Sequence[Masked], text: Prepared) -> DialogTokens:
    """In a row, with an end of document behind each that nobody learns."""
    digest = hashlib.blake2b(text.training.digest.encode(), digest_size=8)
    for one in dialogues:
        digest.update(one.ids_N.tobytes() + one.learned_N.tobytes())
    end = np.array([text.tokenizer.end], dtype=np.uint32)
    rows = [part for one in dialogues for part in (one.ids_N, end)]
    masks = [part for one in dialogues for part in (one.learned_N, np.zeros(1, dtype=np.bool_))]
    lengths = np.array([len(one.ids_N) + 1 for one in dialogues], dtype=np.int64)
    tokens = Tokens(np.concatenate([end[:0], *rows]), np.cumsum(lengths), digest.hexdigest())
    learned_N = np.concatenate([np.zeros(0, dtype=np.bool_), *masks])
    return DialogTokens(tokens, learned_N, text.training.digest)
