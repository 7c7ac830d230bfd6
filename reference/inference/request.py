"""What is asked of an engine, and what it tells.

One token from logits: temperature, then the `top_k` likeliest, then the fewest of these that
hold `top_p` of the probability (Holtzman et al. 2020, arXiv:1904.09751), the order of vLLM.

The draw of a choice's token number i follows from seed, choice and i alone: neighbours in a batch,
a preemption or a second server change nothing. Two log-probabilities come with it: `logprob` is the
model's at temperature 1 over all its words, what a trainer computes again and RL's ratio needs;
`sampled_logprob` is that of the distribution that was drawn from, temperature, cuts and grammar
included, what the behaviour policy of a sampled token was. A greedy token has the latter 0.

Legend: W words.

The constraint on an assistant's message: text, then perhaps calls in K2's template whose
arguments fulfil their tool's schema (the report's "enforcer", arXiv:2507.20534, appendix B), or
JSON of one schema.

Under `auto` the model decides whether a section of calls begins; under `required` it begins at
once; a named function is called once. A call that is closed parses and validates, whatever the
weights: llguidance (github.com/guidance-ai/llguidance) masks the tokens of names, indices and
arguments. It draws text that a grammar forces in the tokenizer's own tokens.

Legend: W tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from math import log
from typing import Any, Final, Literal, Protocol

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from torch import Tensor

from reference.dialog import call_id
from reference.inference.json_grammar import SchemaError, choice_grammar
from reference.text.template import ARGUMENTS, CALL, CALL_END, CALLS, CALLS_END, END
from reference.text.tokenizer import Vocabulary

COLD: Final = 1e-5
"""Temperatures below are greedy: logits divided by them are not finite. As in vLLM."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; a temperature below `COLD` takes the likeliest, the lowest id of
    equals."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    seed: int = 0


def uniform(seed: int, choice: int, position: int) -> float:
    """A number in [0, 1) for a token of a choice, 53 bits of a hash."""
    digest = blake2b(f"{seed}/{choice}/{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def draw(
    logits_W: Tensor, allowed_W: Tensor, sampling: Sampling, place: tuple[int, int], top: int = 0
) -> GeneratedToken:
    """The token of `place`, a choice and a position in it. At least one word is allowed; logits
    are finite."""
    wide_W = logits_W.double()
    all_W = wide_W - wide_W.logsumexp(0)
    found_W = wide_W.masked_fill(~allowed_W, -torch.inf)
    if sampling.temperature < COLD:
        token, sampled = int(found_W.argmax()), 0.0
    else:
        token, sampled = _drawn(found_W / sampling.temperature, sampling, place)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        values, ids = all_W.topk(min(top, all_W.numel()))
        best = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return GeneratedToken(token, float(all_W[token]), sampled, best)


def _drawn(logits_W: Tensor, sampling: Sampling, place: tuple[int, int]) -> tuple[int, float]:
    """A token by the inverse of the distribution function, and its log-probability."""
    p_W, ids_W = torch.softmax(logits_W, 0).sort(descending=True, stable=True)
    kept = int((p_W > 0).sum())
    kept = min(kept, sampling.top_k or kept)
    if sampling.top_p < 1:
        before = p_W[:kept].cumsum(0) - p_W[:kept]
        kept = max(1, int((before < sampling.top_p * p_W[:kept].sum()).sum()))
    ends = p_W[:kept].cumsum(0)
    total = float(ends[-1])
    point = uniform(sampling.seed, *place) * total
    at = min(
        int(torch.searchsorted(ends, torch.tensor(point, dtype=ends.dtype), right=True)), kept - 1
    )
    return int(ids_W[at]), log(float(p_W[at]) / total)


Finish = Literal["stop", "length", "cancelled", "error"]
"""Why a choice ended: it said all, met its bound, nobody reads on, or it cannot go on (its logits
are not finite, or its grammar admits no token)."""


class Constraint(Protocol):
    """What a choice may say next; it never changes, each token gives another."""

    @property
    def structured(self) -> bool:
        """Whether the next token belongs to a call or to JSON: no text that stop strings end."""
        ...

    def allowed(self) -> Tensor:
        """Which words may come next, [W] of bool."""
        ...

    def after(self, token: int) -> Constraint:
        """What may follow an allowed token."""
        ...


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt, and how to go on from it."""

    prompt: tuple[int, ...]
    max_tokens: int
    choices: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    """Texts that end a choice; they are not part of it."""
    stop_tokens: frozenset[int] = frozenset()
    """Ids that end a choice, beside the end of a document; they have no text."""
    top: int = 0
    """How many of the likeliest tokens are told beside each one."""
    constraint: Constraint | None = None
    min_tokens: int = 0
    """No token that ends a choice is drawn before; without effect beside a constraint."""


@dataclass(frozen=True, slots=True)
class GeneratedToken:
    """One token of a choice."""

    token: int
    logprob: float
    """Of the model at temperature 1, in nats."""
    sampled_logprob: float
    """Of what it was drawn from, in nats."""
    top: tuple[tuple[int, float], ...]
    """The likeliest tokens of the model at temperature 1, best first."""
    weights: int = 0
    """Version of the weights that made it."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a step added to a choice of a request."""

    request: int
    choice: int
    told: GeneratedToken | None
    """None where the choice ends without a token."""
    text: str
    """Further text that no stop string can take back any more; of an error, its reason."""
    finish: Finish | None = None
    cached: int = 0
    """Tokens of the prompt that were found in the cache, of this choice."""


class RefusedError(ValueError):
    """A request that this engine can never serve; `field` says which part of it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class NoTokenError(RuntimeError):
    """A choice's grammar admits no token: it passed the bounds of its parser."""


class QueueFullError(RuntimeError):
    """Too many wait already."""


Calls = Literal["none", "may", "must"]
_GRAMMARS = 256
"""Compiled grammars that are kept."""


class _LlguidanceVocabulary:
    """A vocabulary as llguidance reads it: the bytes of each id, and which ids have no text."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        names = {number: name for name, number in vocabulary.markers.items()}
        names[vocabulary.end] = "<|end|>"
        self.eos_token_id = vocabulary.end
        self.special_token_ids = list(names)
        self.tokens = [
            names[number].encode() if number in names else vocabulary.piece(number)
            for number in range(vocabulary.words)
        ]

    def __call__(self, text: bytes) -> list[int]:
        return self._vocabulary.encode(text.decode())


class TokenMasks:
    """Masks and compiled grammars over a vocabulary; one per engine."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        adapted: Any = TokenizerWrapper(_LlguidanceVocabulary(vocabulary))
        self._tokenizer = LLTokenizer(adapted, n_vocab=vocabulary.words)
        pieces = map(vocabulary.piece, range(vocabulary.words))
        self.text_W = torch.tensor([bool(piece) for piece in pieces])
        self._compiled = lru_cache(maxsize=_GRAMMARS)(self._compile)

    def matcher(self, grammar: str) -> LLMatcher:
        """A matcher before its first token. Raises SchemaError for a grammar that is too large."""
        return self._compiled(grammar).deep_copy()

    def allowed(self, matcher: LLMatcher) -> Tensor:
        """Tokens that a matcher admits next, without the end, [W]."""
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, count=self.vocabulary.words, bitorder="little")
        return torch.from_numpy(mask).bool() & self.text_W

    def only(self, *markers: str, end: bool = False) -> Tensor:
        """These markers, and with `end` the end of a document, [W]."""
        mask_W = torch.zeros(self.vocabulary.words, dtype=torch.bool)
        mask_W[[self.vocabulary.markers[name] for name in markers]] = True
        mask_W[self.vocabulary.end] = end
        return mask_W

    def _compile(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, grammar)
        if matcher.is_error():
            raise SchemaError("", "", matcher.get_error())
        return matcher


@dataclass(frozen=True)
class AnswerRules:
    """What one answer may hold."""

    masks: TokenMasks
    tools: Mapping[str, str]
    """Grammars of the arguments by name."""
    calls: Calls
    first_call: int = 0
    """Calls of the dialog so far."""
    most_calls: int | None = None
    json: str | None = None
    """The grammar of the answer, if it calls no tool."""

    def head(self, number: int) -> LLMatcher:
        """`functions.NAME:INDEX` of the answer's call `number`."""
        index = self.first_call + number
        return self.masks.matcher(choice_grammar(call_id(name, index) for name in self.tools))

    def ends(self) -> Tensor:
        """What ends a message, [W]."""
        return self.masks.only(END, end=True)


@dataclass(frozen=True)
class AnswerConstraint:
    """A place in an answer: a `Constraint`. `inside` is `text`, `json`,
    `must` (a section of calls has to begin), or the marker that came last."""

    rules: AnswerRules
    inside: str
    matcher: LLMatcher | None = None
    """Of the head, arguments or JSON that it is in, there."""
    written: bytes = b""
    """What the matcher has taken."""
    closed: int = 0
    """Calls that are closed."""

    @property
    def structured(self) -> bool:
        """Whether it is in calls or JSON, where no stop string ends the text."""
        return self.inside != "text"

    def allowed(self) -> Tensor:
        """Which tokens may come next, [W]."""
        rules, masks = self.rules, self.rules.masks
        if self.inside == "text":
            return masks.text_W | rules.ends() | self._opens()
        if self.matcher is not None:
            further = self._closes() if self.matcher.is_accepting() else self._starts()
            return masks.allowed(self.matcher) | further
        if self.inside == CALL_END:
            more = rules.most_calls is None or self.closed < rules.most_calls
            return masks.only(*((CALL, CALLS_END) if more else (CALLS_END,)))
        if self.inside == CALLS_END:
            return rules.ends()
        return masks.only(CALL if self.inside == CALLS else CALLS)

    def after(self, token: int) -> AnswerConstraint:
        """After an allowed token."""
        name = self.rules.masks.vocabulary.marker(token)
        if name is None:
            return self._consumed(token)
        if name == CALL:
            return self._enters(CALL, self.rules.head(self.closed))
        if name == ARGUMENTS:
            called = self.written.decode().removeprefix("functions.").rpartition(":")[0]
            return self._enters(ARGUMENTS, self.rules.masks.matcher(self.rules.tools[called]))
        return AnswerConstraint(self.rules, name, closed=self.closed + (name == CALL_END))

    def _consumed(self, token: int) -> AnswerConstraint:
        if self.matcher is None:
            return self
        matcher = self.matcher.deep_copy()
        matcher.consume_token(token)
        written = self.written + self.rules.masks.vocabulary.piece(token)
        return replace(self, matcher=matcher, written=written)

    def _enters(self, inside: str, matcher: LLMatcher) -> AnswerConstraint:
        return AnswerConstraint(self.rules, inside, matcher, closed=self.closed)

    def _closes(self) -> Tensor:
        """What may follow a complete head, arguments or JSON, [W]."""
        if self.inside == "json":
            return self.rules.ends()
        return self.rules.masks.only(ARGUMENTS if self.inside == CALL else CALL_END)

    def _starts(self) -> Tensor:
        """What may take the place of JSON that has not begun, [W]."""
        begun = self.inside != "json" or self.written
        return self.rules.masks.only() if begun else self._opens()

    def _opens(self) -> Tensor:
        """The marker of a section of calls where it may begin, [W]."""
        may = self.rules.calls == "may" and self.rules.tools
        return self.rules.masks.only(*((CALLS,) if may else ()))


def begin(rules: AnswerRules) -> AnswerConstraint:
    """Before the first token of an answer."""
    if rules.calls == "must":
        return AnswerConstraint(rules, "must")
    if rules.json is not None:
        return AnswerConstraint(rules, "json", rules.masks.matcher(rules.json))
    return AnswerConstraint(rules, "text")
