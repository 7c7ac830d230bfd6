"""The host of an engine: what it takes for a pass, and how much of that no kernel hides.

The scheduler makes a pass, the device runs it, and its tokens come back to be judged: one after the
other in most frameworks, so that the host's part adds to the kernels'. A framework that is `ahead`
schedules the next pass meanwhile, so that a pass lasts as long as the slower of the two (SGLang's
overlapped scheduler; vLLM's asynchronous scheduling). Text and log-probabilities are made in line,
or `apart`, by a process that may fall behind and then decides. Without CUDA graphs, and for passes
larger than the largest graph, kernels follow one another no faster than the host launches them.

An engine of several nodes also waits for its workers there. Left out: garbage collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from twin.arch.kernels import streaming
from twin.arch.ops import Item, Op, Work
from twin.inference.engine import Cause, Engine, Pass


def step_seconds(engine: Engine) -> float:
    """Seconds of the host for a pass, whatever is in it."""
    own = engine.spec.software
    if own is None:
        return engine.spec.step_overhead
    beside = own.each_pass * engine.cluster.node.host.slowness
    return engine.spec.step_overhead + beside + own.each_node * (engine.everyone.nodes - 1)


def sequence_seconds(engine: Engine) -> float:
    """Seconds of the host for each sequence of a pass, those of its output where they add."""
    own = engine.spec.software
    if own is None:
        return engine.spec.sequence_overhead
    each = own.sequence + (0.0 if own.apart else own.each_output)
    return engine.spec.sequence_overhead + each * engine.cluster.node.host.slowness


def hosted(engine: Engine, one: Pass, sequences: int, kernels: float, rows: int) -> Pass:
    """A pass of so many kernels with what the host adds to it; `rows` are the tokens of a group."""
    own, slow = engine.spec.software, engine.cluster.node.host.slowness
    device, host = one.seconds, step_seconds(engine) + sequence_seconds(engine) * sequences
    if own is None:
        return _with(one, host)
    launched = engine.spec.eager or rows > own.graphs
    added = max(0.0, kernels * own.launch * slow - device) if launched else 0.0
    taken = max(device + added, host) if own.ahead else device + added + host
    if own.apart:
        taken = max(taken, own.each_output * slow * sequences)
    return _with(one, taken - device)


def _with(one: Pass, host: float) -> Pass:
    causes: dict[Cause, float] = {**one.causes, "host": host}
    return replace(one, causes=causes)


def kernels_of(items: Mapping[str, Iterable[Item]], counts: Mapping[str, int]) -> float:
    """Kernels of a pass, collectives counted as one each."""
    return sum(
        counts.get(kind, 0) * sum(_kernels(item) for item in layer) for kind, layer in items.items()
    )


def _kernels(item: Item) -> float:
    if isinstance(item, Op):
        return item.forward.kernels
    return 0.0 if item.forward is None else 1.0


def sampling(engine: Engine, rows: int) -> tuple[Op, ...]:
    """From the logits of so many rows, which every tensor rank has, to tokens."""
    own = engine.spec.software
    if own is None:
        return ()
    moved = own.sampling_bytes * rows * engine.model.vocab
    return (streaming("sampling", Work(0.0, moved, own.sampling_kernels), Work(), 0.0, 0.0),)
