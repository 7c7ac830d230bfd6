"""What an engine serves per second, and what its cache saves; the figures are printed."""

from __future__ import annotations

import time
from functools import cache

import pytest
import torch

from reference.config import load_run
from reference.inference.engine import Engine
from reference.inference.request import EngineRequest, Sampling
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.text.tokenizer import ByteTokenizer, Vocabulary
from tests.reference.inference.small import run

pytestmark = pytest.mark.benchmark
PROMPT, ANSWER = 64, 64


@cache
def nano() -> Transformer:
    spec = load_run("nano").model
    made = Transformer(spec).eval()
    initialize(made, 0)
    return made


def served(**fields) -> Engine:
    vocabulary = Vocabulary(ByteTokenizer(), nano().spec.vocab)
    # No end of a document, so that every request has its full length.
    vocabulary.known_W[256:] = False
    return Engine(nano(), vocabulary, EngineSpec.model_validate({"blocks": 2048, **fields}))


def prompt(number: int) -> tuple[int, ...]:
    random = torch.Generator().manual_seed(number)
    return tuple(torch.randint(0, 256, (PROMPT,), generator=random).tolist())


def seconds(engine: Engine, count: int) -> float:
    for number in range(count):
        engine.add(EngineRequest(prompt(number), ANSWER, sampling=Sampling(temperature=0.0)))
    begun = time.perf_counter()
    run(engine)
    return time.perf_counter() - begun


def test_tokens_per_second_grow_with_requests_that_run_together() -> None:
    rates = {count: count * ANSWER / seconds(served(), count) for count in (1, 8, 32)}
    print("tokens per second together:", {count: round(rate) for count, rate in rates.items()})
    assert rates[8] > 2 * rates[1]
    assert rates[32] > rates[8]


@torch.no_grad()
def test_decoding_from_the_cache_beats_computing_all_again() -> None:
    cached = seconds(served(), 1)
    tokens = list(prompt(0))
    begun = time.perf_counter()
    for _ in range(ANSWER):
        tokens.append(int(nano()(torch.tensor([tokens]))[0, -1, :256].argmax()))
    again = time.perf_counter() - begun
    print(
        f"{ANSWER} tokens: {cached:.2f} s cached, {again:.2f} s again, {again / cached:.1f} times"
    )
    assert again > cached


def test_a_shared_prefix_is_computed_once() -> None:
    computed = {}
    for shares in (True, False):
        engine = served(share_prefixes=shares)
        for number in range(8):
            words = (*prompt(0), *prompt(1), number)
            engine.add(EngineRequest(words, 2, sampling=Sampling(temperature=0.0)))
            run(engine)
        computed[shares] = engine.counts.computed_tokens
    print("tokens computed with shared prefixes, without:", computed[True], computed[False])
    assert computed[False] - computed[True] == 7 * 2 * PROMPT
