"""One machine for two engines, of which one works while the other sleeps (Kimi K2, section 3.3).

Asleep, the inference engine has no cache and no weights: the update brings new ones anyway, as when
an engine's weights are dropped rather than moved away. The trainer's gradients are freed by its own
step, and its weights and states stay where they are; on a CPU there is nowhere to move them to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from reference.inference.cache import PagedCache
from reference.inference.engine import Engine
from reference.inference.spec import EngineSpec
from reference.model import Transformer
from reference.text.vocabulary import Vocabulary
from reference.weight_sync.local import Colocated as HostCopies
from reference.weight_sync.local import Served
from reference.weight_sync.spec import SyncSpec

Updater = Callable[[Engine, Transformer, int], None]
"""What brings the weights of a model, of some version, into an engine that has room for them."""


def copied(engine: Engine, model: Transformer, version: int) -> None:
    """Tensor by tensor."""
    engine.update_weights(model.state_dict(), version)


def through_host(model: Transformer, sync: SyncSpec) -> Updater:
    """Through copies in host memory, in buckets: `reference.weight_sync`, in one process."""
    kept = HostCopies(model.spec, next(model.parameters()).dtype, sync)

    def update(engine: Engine, model: Transformer, version: int) -> None:
        kept.keep([model], version)
        kept.update(Served(engine))

    return update


def engine_like(model: Transformer, words: Vocabulary, spec: EngineSpec) -> Engine:
    """An engine with the weights of a model, a copy of its own on the CPU."""
    like = next(model.parameters())
    engine = Engine(Transformer(model.spec, dtype=like.dtype), words, spec)
    engine.model.stretch(model.spec.rope)
    copied(engine, model, 0)
    return engine


def sleep(engine: Engine) -> int:
    """Give back the cache and the weights; returns their bytes. Nobody may be in line."""
    if not engine.idle:
        raise ValueError("an engine with work in line does not sleep")
    freed = engine.cache.bytes
    engine.scheduler.forget()
    engine.cache = _cache(engine, 0)
    for tensor in _tensors(engine):
        freed += tensor.numel() * tensor.element_size()
        tensor.untyped_storage().resize_(0)
    return freed


def receive(engine: Engine, model: Transformer, version: int, update: Updater = copied) -> None:
    """Make room for weights, and take new ones."""
    for tensor in _tensors(engine):
        tensor.untyped_storage().resize_(tensor.numel() * tensor.element_size())
    update(engine, model, version)


def wake(engine: Engine) -> None:
    """Make the cache again; the weights are there."""
    engine.cache = _cache(engine, engine.spec.blocks)


def _cache(engine: Engine, blocks: int) -> PagedCache:
    like = torch.empty(0, dtype=next(engine.model.parameters()).dtype)
    return PagedCache(engine.model.spec, blocks, engine.spec.block_tokens, like)


def _tensors(engine: Engine) -> Iterable[Tensor]:
    return engine.model.state_dict().values()
