"""A run's model in this process: text, dialogues, and log-likelihoods.

It follows conventions of lm-evaluation-harness: context and continuation are encoded together and
separated where the context alone ends (`loglikelihood`), long texts are cut at their beginning, and
texts begin behind the end of a document. Unlike its `loglikelihood_rolling`, a text's end is
predicted, too, and sequences overlap by half: so bits per byte are those that training reports.

Dialogues go through `Decoder`, whose answers follow from its requests alone: requests that come
together are computed together, in their order, on an engine that has forgotten earlier ones
(`begin`). `reference.inference.local` serves requests in any order. Decoding is free by default:
tool calls are held to no grammar, so that the model shows what it learned.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.nn import functional

from reference.config import RunSpec, load_run
from reference.convert.folder import config_of
from reference.dialog import Dialog
from reference.evaluate.subject import ContinuationFit, Prompt, SampledAnswer, TextFit
from reference.generate import chat
from reference.generate.request import Account, ChatRequest, Prices, Reply, ReplyPiece, Tokens
from reference.inference.engine import Engine, put_weights
from reference.inference.local import load_engine
from reference.inference.openai.api import FINISHES, ChatChoice, usage_of
from reference.inference.openai.body import ApiError, ApiRequest, ServedModel, read_chat
from reference.inference.request import EngineRequest, Sampling, TokenMasks, Update
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.model.transformer import IGNORED
from reference.text.loader import Batch, windows
from reference.text.packing import pack
from reference.text.prepare import Prepared, prepare
from reference.text.tokenizer import Vocabulary
from twin.errors import Problem, UsageError

NO_MARKERS: Final = "the model has no ids for the markers of the chat template"
_RESERVE: Final = "train it with `data.tokenizer.vocab` 10 below the model's `vocab`"
_TOGETHER: Final = 64
"""Requests that the engine has at one time."""
_NAME: Final = "judged"


class Decoder:
    """A model as a generator: one request at a time, or many with `complete_all`. A dialogue and
    its answer have at most `window` tokens."""

    def __init__(self, engine: Engine, window: int, *, constrained: bool = False) -> None:
        self.engine, self.window, self._constrained = engine, window, constrained
        self.account = Account(Prices())
        self._lock = threading.Lock()
        self._masks: TokenMasks | None = None

    def begin(self) -> None:
        """Forget prefixes that earlier requests left in the cache."""
        with self._lock:
            self.engine.scheduler.forget()

    def complete(self, request: ChatRequest) -> Reply:
        """The whole reply. Raises UsageError: TW552 for a dialogue that is too long, TW551 for what
        cannot be asked, TW584 where the model has no room for the template's markers."""
        (found,) = self.complete_all([request])
        if isinstance(found, UsageError):
            raise found
        return found

    def stream(self, request: ChatRequest) -> Iterator[ReplyPiece]:
        """The reply in one piece."""
        found = self.complete(request)
        yield ReplyPiece(found.text, found)

    def complete_all(self, requests: Sequence[ChatRequest]) -> list[Reply | UsageError]:
        """Replies in order, computed together; an error stands in the place of one that cannot be
        had. Raises UsageError TW584."""
        if not self.engine.vocabulary.markers:
            raise UsageError([Problem("TW584", "model", NO_MARKERS, _RESERVE)])
        with self._lock:
            chats = [self._chat(request) for request in requests]
            asked = [each.engine for each in chats if not isinstance(each, UsageError)]
            updates = iter(self._run(asked))
            return [
                each if isinstance(each, UsageError) else self._reply(request, each, next(updates))
                for request, each in zip(requests, chats, strict=True)
            ]

    def run(self, requests: Sequence[EngineRequest]) -> list[list[Update]]:
        """What the engine tells of each request, in order."""
        with self._lock:
            return self._run(requests)

    def _run(self, requests: Sequence[EngineRequest]) -> list[list[Update]]:
        updates: list[list[Update]] = []
        for first in range(0, len(requests), _TOGETHER):
            numbers = [self.engine.add(each) for each in requests[first : first + _TOGETHER]]
            told: dict[int, list[Update]] = {number: [] for number in numbers}
            while not self.engine.idle:
                for update in self.engine.step():
                    told[update.request].append(update)
            updates += told.values()
        return updates

    def _chat(self, request: ChatRequest) -> ApiRequest | UsageError:
        self._masks = self._masks or TokenMasks(self.engine.vocabulary)
        served = ServedModel(_NAME, self.engine.vocabulary, self.window, lambda: 0)
        more: dict[str, Any] = {"constrained": self._constrained, "return_raw": True}
        try:
            body = chat.body(request, _NAME, stream=False)
            return read_chat({**body, **more}, served, self._masks)
        except ApiError as error:
            long = error.param in ("messages", "max_tokens")
            fix = "shorten the dialogue, or raise the context" if long else "change the request"
            code = "TW552" if long else "TW551"
            return UsageError([Problem(code, "generator", error.message, fix)])

    def _reply(self, request: ChatRequest, asked: ApiRequest, updates: Sequence[Update]) -> Reply:
        choice = ChatChoice(self.engine.vocabulary, asked, 0)
        for update in updates:
            choice.add(update)
        whole = {"choices": [choice.whole()], "usage": usage_of(asked.engine, updates)}
        found = chat.reply(whole, request)
        self.account.reply(found.tokens)
        return found


_ROWS: Final = 32
"""Rows of one pass."""


@dataclass(frozen=True, slots=True)
class TrainedSubject:
    """A trained model, its text, and the length of its training sequences."""

    identity: Mapping[str, Any]
    engine: Engine
    generator: Decoder
    trained: int
    """Tokens of its longest training sequences."""
    prepared: Prepared

    @property
    def held_out(self) -> list[str]:
        """Documents that training never saw, in the order of a hash of their names."""
        return [self.prepared.tokenizer.decode(ids) for ids in self.prepared.held_out_tokens]

    def refusal(self, *, chat: bool, reads: bool) -> str | None:
        """A model without markers has no chat template."""
        del reads
        return NO_MARKERS if chat and not self.engine.vocabulary.markers else None

    def begin(self) -> None:
        """Forget the cache."""
        self.generator.begin()

    def tokens(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.engine.vocabulary.encode(text))

    def window(self, context: int | None) -> int:
        """What is asked for, or what it was trained with, as far as the cache holds it."""
        return min(context or self.trained, self.engine.scheduler.capacity)

    def write(self, prompts: Sequence[Prompt]) -> list[SampledAnswer]:
        """Dialogues and texts, each kind computed together."""
        chats = iter(self._chats([each for each in prompts if isinstance(each.said, Dialog)]))
        texts = iter(self._texts([each for each in prompts if isinstance(each.said, str)]))
        return [next(chats if isinstance(each.said, Dialog) else texts) for each in prompts]

    def fits(self, pairs: Sequence[tuple[str, str]], context: int | None) -> list[ContinuationFit]:
        """Nats of each continuation; behind an empty context it begins a document."""
        rows: list[tuple[list[int], int, int]] = []
        for before, after in pairs:
            ids, start = self._joined(before, after)
            cut = max(0, min(start - 1, len(ids) - 1 - self.window(context)))
            rows.append((ids[cut:], len(ids) - start, cut))
        sums = self._nats([ids for ids, _, _ in rows], [count for _, count, _ in rows])
        return [
            ContinuationFit(nats, count, cut)
            for nats, (_, count, cut) in zip(sums, rows, strict=True)
        ]

    def read(self, texts: Sequence[str], context: int | None) -> list[TextFit]:
        """Each text by itself, from the end of a document to its own."""
        tokenizer = self.prepared.tokenizer
        fits: list[TextFit] = []
        for ids, text in zip(tokenizer.encode(texts), texts, strict=True):
            tokens = pack([ids], tokenizer.vocabulary)
            batches = windows(tokens, tokenizer.end, self.window(context), _ROWS // 4)
            nats = nats_of(self.engine.model, batches)
            fits.append(TextFit(nats, len(tokens), len(text.encode())))
        return fits

    def _chats(self, prompts: Sequence[Prompt]) -> list[SampledAnswer]:
        contexts = {prompt.context for prompt in prompts}
        assert len(contexts) < 2, "prompts of one call have one context"
        for context in contexts:
            self.generator.window = self.window(context)
        replies = self.generator.complete_all([prompt.request() for prompt in prompts])
        return [SampledAnswer(each if isinstance(each, Reply) else None) for each in replies]

    def _texts(self, prompts: Sequence[Prompt]) -> list[SampledAnswer]:
        requests = [self._text(prompt) for prompt in prompts]
        updates = self.generator.run([request for request, _ in requests])
        return [
            SampledAnswer(_reply(request, own), cut)
            for (request, cut), own in zip(requests, updates, strict=True)
        ]

    def _text(self, prompt: Prompt) -> tuple[EngineRequest, int]:
        assert isinstance(prompt.said, str)
        ids = [self.engine.vocabulary.end, *self.engine.vocabulary.encode(prompt.said)]
        sampling = prompt.sampling
        room = max(1, self.window(prompt.context) - sampling.max_tokens)
        drawn = Sampling(sampling.temperature, sampling.top_p, 0, sampling.seed)
        kept = tuple(ids[-room:])
        request = EngineRequest(kept, sampling.max_tokens, sampling=drawn, stop=sampling.stop)
        return request, max(0, len(ids) - room)

    def _joined(self, before: str, after: str) -> tuple[list[int], int]:
        """Ids of both with the end of a document before them, and where the second one begins: a
        context's last spaces belong to it. Where a token would hold the end of the one and the
        beginning of the other, each is encoded by itself."""
        bare = before.rstrip()
        encode, end = self.engine.vocabulary.encode, self.engine.vocabulary.end
        first, whole = encode(bare), encode(f"{before}{after}")
        if whole[: len(first)] != first or len(whole) == len(first):
            whole = [*first, *encode(f"{before[len(bare) :]}{after}")]
        return [end, *whole], 1 + len(first)

    @torch.no_grad()
    def _nats(self, rows: Sequence[list[int]], last: Sequence[int]) -> list[float]:
        """Nats of the last tokens of each row; what fills shorter rows stands behind them, where a
        causal model does not look."""
        nats: list[float] = []
        for first in range(0, len(rows), _ROWS):
            part, counts = rows[first : first + _ROWS], last[first : first + _ROWS]
            longest = max(map(len, part))
            end = self.engine.vocabulary.end
            ids_BT = torch.tensor([row + [end] * (longest - len(row)) for row in part])
            logits_BTW = self.engine.model(ids_BT[:, :-1]).float()
            nats_BT = functional.cross_entropy(
                logits_BTW.transpose(1, 2), ids_BT[:, 1:], reduction="none"
            ).double()
            nats += [
                float(nats_BT[at, len(row) - 1 - count : len(row) - 1].sum())
                for at, (row, count) in enumerate(zip(part, counts, strict=True))
            ]
        return nats


@torch.no_grad()
def nats_of(model: Transformer, batches: Iterable[Batch]) -> float:
    """The sum of the nats of all targets of the batches."""
    total = 0.0
    for tokens_BT, targets_BT in batches:
        logits_BTW = model(tokens_BT).float()
        total += functional.cross_entropy(
            logits_BTW.flatten(0, 1), targets_BT.flatten(), ignore_index=IGNORED, reduction="sum"
        ).item()
    return total


def open_trained(
    folder: Path, precision: str | None = None, *, constrained: bool = False
) -> TrainedSubject:
    """The model of a run's folder or of one of its checkpoints. Raises what `load_engine` does."""
    engine = load_engine(folder, EngineSpec(), precision)
    run = load_run(config_of(folder))
    return trained(engine, run, prepare(run.data, run.model.vocab), constrained=constrained)


def trained(
    engine: Engine, run: RunSpec, prepared: Prepared, *, constrained: bool = False
) -> TrainedSubject:
    """An engine with a run's model as the model that is evaluated."""
    longest = max(run.train.sequence, *(stage.sequence for stage in run.stages), 0)
    identity = {
        "kind": "run",
        "model": run.model.name,
        "weights": digest_of(engine.model),
        "precision": str(next(engine.model.parameters()).dtype).removeprefix("torch."),
        "trained_tokens": longest,
        "constrained": constrained,
    }
    decoder = Decoder(engine, longest, constrained=constrained)
    return TrainedSubject(identity, engine, decoder, longest, prepared)


def copied(model: Transformer, run: RunSpec, prepared: Prepared) -> TrainedSubject:
    """A copy of a model that is being trained, on the CPU; no request reaches the trainee."""
    copy = Transformer(model.spec, dtype=next(model.parameters()).dtype)
    put_weights(copy, model.state_dict())
    vocabulary = Vocabulary(prepared.tokenizer, model.spec.vocab)
    return trained(Engine(copy, vocabulary, EngineSpec()), run, prepared)


def digest_of(model: Transformer) -> str:
    """Of all weights by name, in their own precision."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _reply(request: EngineRequest, updates: Sequence[Update]) -> Reply:
    text = "".join(update.text for update in updates)
    made = sum(update.told is not None for update in updates)
    finish = FINISHES.get(updates[-1].finish or "stop", "stop")
    return Reply(text, (), Tokens(len(request.prompt), made), finish)
