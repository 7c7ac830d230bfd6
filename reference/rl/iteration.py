"""One iteration, top to bottom: prompts, rollout, the switch, updates, new weights, waking up.

    rollout   the inference engine writes responses, environments answer
    switch    it gives its memory back
    train     rewards, then `train.updates` optimizer steps
    update    new weights reach the inference engine
    wake      it takes its memory again

Between phases, after each slice of a rollout and after each update, the run can stop and go on bit
for bit: at each of these places everything that is not in a checkpoint begins anew, whether or not
a checkpoint is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from reference.rl.batches import ptx_batches
from reference.rl.critique.ranking import comparison_batches
from reference.rl.objective import learn
from reference.rl.prompts import draw, seed_of
from reference.rl.records import NOBODY, PromptGroup
from reference.rl.rewards import give, parts
from reference.rl.rollout import DivergedError, temperature_at
from reference.rl.session import Session, new_group, receive, save, sleep, wake
from reference.text.loader import Weighed


class StoppedError(Exception):
    """The run was asked to stop, and did."""


def iterate(session: Session) -> None:
    """The rest of the iteration. Raises StoppedError, behind a checkpoint, and DivergedError."""
    place = session.place
    if place.phase == "rollout":
        with session.phase("rollout"):
            _fill(session)
        _roll(session)
        place.phase = "train"
        _point(session)
    _train(session)
    _update(session)
    _finish(session)
    _point(session, over=True)


def _fill(session: Session) -> None:
    """Draw prompts up to the count of the section."""
    spec, place = session.spec, session.place
    while len(session.open) < spec.prompts.count:
        taken = {group.task for group in session.open}
        name = draw(session.tasks, session.history, spec.prompts, taken, place.iteration)
        session.open.append(new_group(session, session.tasks[name]))


def _roll(session: Session) -> None:
    """Write until all is over or the tokens are spent; then separate finished from open prompts."""
    place, rollout = session.place, session.rollout
    rollout.temperature = temperature_at(session.spec.temperature, place.iteration)
    responses = [response for group in session.open for response in group.responses]
    while True:
        with session.phase("rollout"):
            why = rollout.run(responses)
        place.clock, place.written = rollout.clock, rollout.written
        if why != "slice":
            break
        _point(session)
    rollout.rest([response for response in responses if not response.finished])
    place.clock = place.written = 0
    finished = [group for group in session.open if group.finished]
    session.open = [group for group in session.open if not group.finished]
    sound = [_sound(group) for group in finished]
    session.ready = [group for group in sound if len(group.responses) > 1]
    for group in sound:
        right = sum(response.success for response in group.responses)
        if session.tasks[group.task].verifiable:
            session.history.add(group.task, len(group.responses), right)
    with session.phase("rollout"):
        _reward(session)
    session.facts |= _told(session, finished)


def _reward(session: Session) -> None:
    """Reward responses by their verdicts, or by the critic, while the engine is awake."""
    seed, iteration = session.spec.prompts.seed, session.place.iteration
    critique = session.critique
    ranked = {} if critique is None else critique.ranked(session.ready)
    give(session.ready, session.spec.rewards, seed_of("rewards", seed, iteration), ranked)
    if critique is not None and critique.spec.check:
        drawn = seed_of("agreement", seed, iteration)
        session.facts["agreement"] = critique.agreement(session.ready, drawn)


def _sound(group: PromptGroup) -> PromptGroup:
    """A prompt without the responses whose environment failed: their reward is unknown."""
    sound = [response for response in group.responses if response.ended != "failed"]
    return PromptGroup(group.number, group.task, sound)


def _train(session: Session) -> None:
    place, spec = session.place, session.spec
    with session.phase("switch"):
        sleep(session.rollout.engine)
    parts = [session.ready[first :: spec.train.updates] for first in range(spec.train.updates)]
    while place.learned < len(parts):
        groups = parts[place.learned]
        place.learned += 1
        if groups:
            with session.phase("train"):
                _learn(session, groups)
            _point(session)


def _learn(session: Session, groups: Sequence[PromptGroup]) -> None:
    spec, trainee = session.spec, session.trainee
    first = session.facts.get("entropy") is None
    if spec.objective.reset_optimizer and first:
        _forget(session)
    beside = _comparisons(session, groups)
    if spec.ptx is not None and session.ptx is not None:
        beside = ptx_batches(spec.ptx, session.ptx) + beside
    newest = session.place.version
    own = {"newest": newest, "beside": beside, "pad_to": spec.train.pad_to}
    update = learn(session.run, trainee, groups, spec.objective, **own)
    if update.step is None:
        raise DivergedError
    session.log.write("step", asdict(update.step))
    looked_s = session.facts.get("looked_s", 0.0) + update.looked_s
    session.facts |= {"loss": update.step.loss, "looked_s": looked_s}
    if first:
        before = update.before
        session.facts |= {"entropy": before.entropy, "mismatch": before.mismatch}
        session.facts |= {"log_ratio": before.log_ratio_R.mean().item()}


def _comparisons(session: Session, groups: Sequence[PromptGroup]) -> list[Weighed]:
    """Micro-batches that teach the policy as a critic, from these groups."""
    critique, run = session.critique, session.run.train
    if critique is None or not critique.spec.weight:
        return []
    seed = seed_of("comparisons", session.spec.prompts.seed, session.trainee.step)
    pairs = critique.verified(groups, critique.spec.pairs, seed)
    shape = run.micro_batch, run.sequence
    return comparison_batches(pairs, critique, session.rollout.engine.vocabulary, shape)


def _forget(session: Session) -> None:
    """Set momenta and second moments to zero; masters stay."""
    for name, pieces in session.trainee.optimizer.pieces().items():
        if name.endswith("/master"):
            continue
        for piece in pieces if isinstance(pieces, tuple) else (pieces,):
            piece.tensor.zero_()


def _update(session: Session) -> None:
    """New weights, a version higher where there was something to learn."""
    place, engine = session.place, session.rollout.engine
    place.version += bool(session.ready)
    with session.phase("update"):
        (model,) = session.trainee.models
        receive(engine, model, place.version, session.update)
    with session.phase("wake"):
        wake(engine)


def _finish(session: Session) -> None:
    """The iteration's line, and the beginning of the next."""
    place, trainee = session.place, session.trainee
    place.iteration += 1
    place.phase, place.learned = "rollout", 0
    blank = dict.fromkeys(("entropy", "log_ratio", "mismatch", "loss"))
    facts = {**blank, "looked_s": 0.0, **session.facts}
    facts |= {"iteration": place.iteration, "step": trainee.step, "phases": dict(session.seconds)}
    made = session.log.iteration(facts)
    session.ready, session.facts, session.seconds = [], {}, {}
    session.rollout.seen = type(session.rollout.seen)()
    session.progress(made)


def _told(session: Session, finished: Sequence[PromptGroup]) -> dict[str, Any]:
    """The rollout's part of the iteration's line."""
    responses = [response for group in finished for response in group.responses]
    learned = [response for group in session.ready for response in group.responses]
    seen, newest = session.rollout.seen, session.place.version
    ages = [newest - v for response in responses for v in response.versions if v != NOBODY]
    sound = [response for response in responses if response.ended != "failed"]
    verdicts = [response.verdict for response in sound if response.verdict]
    return {
        "version": newest,
        "groups": len(session.ready),
        "left_out": len(finished) - len(session.ready),
        "open": len(session.open),
        "reward": _mean([response.reward for response in learned]),
        "parts": parts(session.ready, session.spec.rewards),
        "success": _mean([float(response.success) for response in verdicts]),
        "score": _mean([response.score for response in verdicts]),
        "length": _mean([float(response.written) for response in responses]),
        "longest": max((response.written for response in responses), default=0),
        "ended": dict(sorted(Counter(str(response.ended) for response in responses).items())),
        "stale": _mean([float(age > 0) for age in ages]),
        "oldest": max(ages, default=0),
        "temperature": session.rollout.temperature,
        "written": seen.written,
        "computed": seen.computed,
        "engine_steps": seen.steps,
        "answers": seen.answers,
        "failures": len(seen.failures),
        "waited_s": seen.waited_s,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _point(session: Session, *, over: bool = False) -> None:
    """A place where the run can stop."""
    place, every = session.place, session.spec.train.checkpoint_every
    place.points += 1
    last = over and place.iteration == session.spec.iterations
    due = over and every > 0 and place.iteration % every == 0
    stopping = session.stop.signal is not None
    if last or due or stopping:
        save(session)
    if stopping and not last:
        raise StoppedError
