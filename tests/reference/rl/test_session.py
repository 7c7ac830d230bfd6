"""The engine that sleeps, and what it is when it wakes."""

from __future__ import annotations

import pytest

from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.model.transformer import initialize
from reference.rl.session import engine_like, receive, sleep, wake
from tests.reference.inference.small import VOCABULARY, asked, ids, model, run


def test_an_engine_asleep_holds_nothing_and_awake_says_what_new_weights_say() -> None:
    engine = engine_like(model(0), VOCABULARY, EngineSpec(blocks=32))
    number = engine.add(asked("ab"))
    before = ids(run(engine), number)
    weights = list(engine.model.state_dict().values())
    held = engine.cache.bytes + sum(one.numel() * one.element_size() for one in weights)
    assert sleep(engine) == held
    assert engine.cache.bytes == 0
    assert all(one.untyped_storage().nbytes() == 0 for one in weights)

    other = Transformer(model(0).spec)
    initialize(other, 9)
    receive(engine, other, 4)
    wake(engine)
    number = engine.add(asked("ab"))
    assert ids(run(engine), number) != before
    assert engine.weights == 4

    sleep(engine)
    receive(engine, model(0), 5)
    wake(engine)
    number = engine.add(asked("ab"))
    assert ids(run(engine), number) == before


def test_an_engine_with_work_does_not_sleep() -> None:
    engine = engine_like(model(0), VOCABULARY, EngineSpec(blocks=32))
    engine.add(asked("ab"))
    with pytest.raises(ValueError, match="in line"):
        sleep(engine)
