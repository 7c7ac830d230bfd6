"""Requests in, tokens out, a step at a time; one thread, no clock, no randomness of its own.

The same requests in the same order give the same tokens. Beside which others a request runs
changes the order of sums in its matrix products and nothing else: a greedy request has the same
tokens unless two words tie to the last bits of fp32.

Legend: W words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference.inference.cache import PagedCache
from reference.inference.forward import SequenceChunk, forward
from reference.inference.request import (
    EngineRequest,
    Finish,
    GeneratedToken,
    QueueFullError,
    RefusedError,
    Update,
)
from reference.inference.sampling import Drawn, draw
from reference.inference.scheduler import Scheduler, StepPlan
from reference.inference.sequence import Sequence, sequences_of
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.text.vocabulary import Vocabulary
from twin.errors import Problem, UsageError

_SHOWN = 8
"""Tensors named in one message."""


@dataclass(slots=True)
class EngineCounts:
    """What an engine has done since it began; a prompt counts once per choice, when that ends."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    finished: dict[Finish, int] = field(default_factory=dict)


class Engine:
    """A model that serves many requests at once."""

    def __init__(self, model: Transformer, vocabulary: Vocabulary, spec: EngineSpec) -> None:
        self.model, self.vocabulary, self.spec = model.eval(), vocabulary, spec
        self.cache = PagedCache(
            model.spec, spec.blocks, spec.block_tokens, model.final_norm.gain.detach()
        )
        self.scheduler = Scheduler(spec)
        self.counts = EngineCounts()
        self.weights = 0
        """Version of the weights; each replacement counts one up, or says its own."""
        self._requests = 0
        self._arrivals = 0
        self.live: dict[int, list[Sequence]] = {}
        """The choices of requests that are not over, by number."""

    @property
    def idle(self) -> bool:
        """Whether nobody runs or waits."""
        return not self.scheduler.running and not self.scheduler.waiting

    def add(self, request: EngineRequest) -> int:
        """Put a request in line; its number. Raises RefusedError for what can never be served, and
        QueueFullError where too many wait."""
        self._refuse_impossible(request)
        here = len(self.scheduler.waiting) + len(self.scheduler.running)
        if here + request.choices > self.spec.queue + self.spec.running:
            raise QueueFullError(f"{len(self.scheduler.waiting)} sequences wait already")
        number, self._requests = self._requests, self._requests + 1
        made = sequences_of(request, number, self._arrivals)
        self._arrivals += len(made)
        self.live[number] = made
        self.scheduler.waiting.extend(made)
        return number

    def cancel(self, number: int) -> None:
        """Forget a request; one that is over is no mistake."""
        for sequence in self.live.pop(number, []):
            if not sequence.ended:
                self._end(sequence, "cancelled")

    def step(self) -> list[Update]:
        """Compute the next step and tell what it added, a token for each sequence whose tokens
        are all computed now."""
        plan = self.scheduler.plan()
        if not plan:
            return []
        logits = self.compute(plan)
        self._count(plan)
        updates: list[Update] = []
        for (sequence, count), logits_W in zip(plan, logits, strict=True):
            self.scheduler.computed(sequence, count)
            if not sequence.pending:
                updates.append(self._extend(sequence, logits_W))
        return updates

    def compute(self, plan: StepPlan) -> Tensor:
        """Logits behind the last token that the plan takes of each sequence, [sequences, W]."""
        return forward(self.model, [_piece(*step) for step in plan], self.cache)

    def update_weights(self, weights: Mapping[str, Tensor], version: int | None = None) -> int:
        """Replace all weights in place; returns their version. The cache of the old ones is
        dropped: who runs goes on with its tokens so far, computed again under the new weights.
        Raises UsageError TW490 where tensors differ, and has replaced nothing then."""
        put_weights(self.model, weights)
        self.scheduler.forget()
        self.weights = self.weights + 1 if version is None else version
        return self.weights

    def _refuse_impossible(self, request: EngineRequest) -> None:
        words = self.model.spec.vocab
        if not request.prompt:
            raise RefusedError("prompt", "an empty prompt has no next token")
        if not all(0 <= token < words for token in request.prompt):
            raise RefusedError("prompt", f"token ids are 0 to {words - 1}")
        if request.max_tokens < 1:
            raise RefusedError("max_tokens", "must be at least 1")
        wanted, capacity = len(request.prompt) + request.max_tokens, self.scheduler.capacity
        if wanted > capacity:
            parts = f"{len(request.prompt)} tokens of prompt and {request.max_tokens} more"
            raise RefusedError("max_tokens", f"{parts} exceed the context of {capacity}")
        most = self.spec.running + self.spec.queue
        if not 1 <= request.choices <= most:
            raise RefusedError("n", f"must be 1 to {most}")

    def _extend(self, sequence: Sequence, logits_W: Tensor) -> Update:
        """Draw the next token of a sequence, and end it where that is the last one."""
        request = sequence.request
        if not bool(torch.isfinite(logits_W).all()):
            return self._last(sequence, None, "", "error")
        drawn = self._draw(sequence, logits_W)
        structured = sequence.constraint is not None and sequence.constraint.structured
        sequence.tokens.append(drawn.token)
        self.counts.generated_tokens += 1
        logprobs = drawn.logprob, drawn.sampled_logprob, drawn.top
        told = GeneratedToken(drawn.token, *logprobs, self.weights)
        if drawn.token == self.vocabulary.end or drawn.token in request.stop_tokens:
            return self._last(sequence, told, "", "stop")
        if sequence.constraint is not None:
            sequence.constraint = sequence.constraint.after(drawn.token)
        piece = self.vocabulary.piece(drawn.token)
        marked = self.vocabulary.marker(drawn.token) is not None
        words = sequence.words
        text = words.flush() if marked else words.add(piece, stops=not structured)
        if sequence.words.stopped:
            return self._last(sequence, told, text, "stop")
        if sequence.made == request.max_tokens:
            return self._last(sequence, told, text, "length")
        return Update(sequence.number, sequence.choice, told, text, None, max(sequence.cached, 0))

    def _draw(self, sequence: Sequence, logits_W: Tensor) -> Drawn:
        allowed_W = self.vocabulary.known_W
        request = sequence.request
        if sequence.constraint is not None:
            allowed_W = allowed_W & sequence.constraint.allowed()
        elif sequence.made < request.min_tokens:
            allowed_W = allowed_W.clone()
            allowed_W[[self.vocabulary.end, *request.stop_tokens]] = False
        place = (sequence.choice, sequence.made)
        return draw(logits_W, allowed_W, request.sampling, place, request.top)

    def _last(
        self, sequence: Sequence, told: GeneratedToken | None, text: str, finish: Finish
    ) -> Update:
        text += sequence.words.end()
        self._end(sequence, finish)
        cached = max(sequence.cached, 0)
        return Update(sequence.number, sequence.choice, told, text, finish, cached)

    def _end(self, sequence: Sequence, finish: Finish) -> None:
        self.scheduler.leave(sequence)
        self.counts.prompt_tokens += len(sequence.request.prompt)
        self.counts.cached_tokens += max(sequence.cached, 0)
        self.counts.finished[finish] = self.counts.finished.get(finish, 0) + 1
        if all(choice.ended for choice in self.live.get(sequence.number, [])):
            self.live.pop(sequence.number, None)

    def _count(self, plan: StepPlan) -> None:
        self.counts.steps += 1
        self.counts.computed_tokens += sum(count for _, count in plan)


def _piece(sequence: Sequence, count: int) -> SequenceChunk:
    start = sequence.computed
    return SequenceChunk(sequence.tokens[start : start + count], start, sequence.blocks)


@torch.no_grad()
def put_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights`, by the names of the model's state, over its own; types may differ.

    Raises UsageError TW490 with the names that are missing, unknown or of another shape.
    """
    own = model.state_dict()
    wrong = sorted(
        name
        for name in own.keys() | weights.keys()
        if name not in own or name not in weights or own[name].shape != weights[name].shape
    )
    if wrong:
        shown = ", ".join(f"`{name}`" for name in wrong[:_SHOWN])
        more = f", and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        message = f"the new weights lack, add or reshape {shown}{more}"
        raise UsageError([Problem("TW490", "weights", message, "give all tensors of the model")])
    for name, tensor in own.items():
        tensor.copy_(weights[name])
