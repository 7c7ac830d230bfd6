"""Runs of studies, several at once, each kept as soon as it ends: a study that was killed goes on
where it was.

Every process has one thread: two busy OpenMP teams on the same cores wait for each other.

A `Scale` says how large the runs of a study are: preset nano, with other lengths, optimizers and
seeds. The schedule keeps the preset's proportions at every length and rate. A seed is that of the
weights and of the order of the documents. All runs are judged on the same held-out sequences.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar, cast

import torch
from pydantic import TypeAdapter
from torch import Tensor

from reference.config import RunSpec, load_run
from reference.files import replace_synced, yaml_table
from reference.optim.blocks import matrices
from reference.optim.diagnostics import svd_entropy
from reference.rl.spec import RlSpec
from reference.studies.study import Workplace, seeds_of
from reference.text.prepare import prepare
from reference.train import Result, train
from reference.trainer.trainee import flop_per_token
from twin.errors import Problem, UsageError

NameT = TypeVar("NameT", bound=Hashable)
KeptT = TypeVar("KeptT")
RunT = TypeVar("RunT", RunSpec, RlSpec)
_FORMAT: Final = 1
"""Version of what is kept; another one is not read, but run again."""
_ROOT: Final = Path(__file__).parents[1]
_BESIDE: Final = frozenset({"studies", "measure", "convert"})


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run that ended, per step where nothing else is said."""

    ended: str
    """`done`, or `diverged`: the loss was no number any more."""
    tokens_per_step: int
    flop_per_token: float
    """Model FLOP, forward and backward."""
    losses: tuple[float, ...]
    """Nats per token of the step's batch, before its update."""
    max_logits: tuple[float, ...]
    clipped_heads: tuple[int, ...]
    imbalances: tuple[float, ...]
    """Tokens of the fullest expert over the mean, in the worst layer."""
    held_out: tuple[tuple[int, float], ...]
    """(step, nats per token) of each evaluation."""
    bits_per_byte: float
    """Of held-out text, at the end."""
    entropies: Mapping[str, tuple[float, ...]]
    """SVD entropy of the matrices in each parameter that Muon would move, at the end."""
    seconds: float
    """Of the steps alone."""

    @property
    def final(self) -> float:
        """Held-out nats per token at the end; infinite where the run diverged."""
        return self.held_out[-1][1] if self.ended == "done" and self.held_out else inf

    @property
    def tokens(self) -> int:
        """Trained on."""
        return self.tokens_per_step * len(self.losses)

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """(tokens, held-out nats per token)."""
        return tuple((step * self.tokens_per_step, loss) for step, loss in self.held_out)


def finals(runs: Mapping[tuple[NameT, int], RunOutcome], name: NameT) -> list[float]:
    """Held-out losses at the end of runs by name and seed, by seed."""
    return [runs[name, seed].final for seed in seeds_of(runs)]


def train_all(runs: Mapping[NameT, RunSpec], place: Workplace) -> dict[NameT, RunOutcome]:
    """The outcome of each run, by its name; what is kept already, or stands twice, runs no more.

    Raises UsageError TW280 where outcomes cannot be kept, and what `train` raises.
    """
    named_runs = {key_of(run): (name, run) for name, run in runs.items()}
    paths = {key: place.cache / f"{key}.json" for key in named_runs}
    found = {key: read(path) for key, path in paths.items()}
    missing = {key: named_runs[key] for key, outcome in found.items() if outcome is None}
    if missing:
        kept_runs = len(named_runs) - len(missing)
        place.tell(f"{len(missing)} runs, {place.jobs} in parallel; {kept_runs} reused")
        _make(place.cache)
        for _, run in missing.values():  # else every process would make the tokens at once
            prepare(run.data, run.model.vocab)
    calls = {key: partial(_run, run, paths[key]) for key, (_, run) in missing.items()}
    for done, (key, outcome) in enumerate(in_processes(place, calls), start=1):
        found[key] = outcome
        name, loss, seconds = named_runs[key][0], outcome.final, outcome.seconds
        words = " ".join(map(str, name)) if isinstance(name, tuple) else name
        place.tell(f"{done}/{len(missing)}: {words}: held-out loss {loss:.4f}, {seconds:.0f} s")
    outcomes = {name: found[key_of(run)] for name, run in runs.items()}
    return {name: outcome for name, outcome in outcomes.items() if outcome is not None}


def gathered(
    place: Workplace,
    calls: Mapping[NameT, Callable[[], KeptT]],
    words: Callable[[NameT, KeptT], str],
) -> dict[NameT, KeptT]:
    """The result of each call, told in words as soon as it is there."""
    found: dict[NameT, KeptT] = {}
    for name, result in in_processes(place, calls):
        found[name] = result
        place.tell(words(name, result))
    return found


def in_processes(
    place: Workplace, calls: Mapping[NameT, Callable[[], KeptT]]
) -> Iterator[tuple[NameT, KeptT]]:
    """Name and result of each call, as they end."""
    if place.jobs == 1 or len(calls) < 2:
        yield from ((name, call()) for name, call in calls.items())
        return
    # Spawned, since a forked child of a process that used torch's threads may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(place.jobs, mp_context=context) as pool:
        futures = {pool.submit(call): name for name, call in calls.items()}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def key_of(run: RunSpec) -> str:
    """The name of a run's outcome: what decides its numbers, the code that trains included."""
    facts = run.model_dump(mode="json")
    facts["train"].pop("output")
    facts["data"].pop("cache")
    return digest([_FORMAT, torch.__version__, code(), facts], 10)


@cache
def code(folder: Path = _ROOT, rooms: tuple[str, ...] = ()) -> str:
    """A digest of the sources that a run's numbers may come from, of all rooms or of some: an
    outcome of older ones is none of today's. Studies and what only measures or converts are no part
    of it."""
    whole = hashlib.blake2b(digest_size=10)
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0]
        if (room in rooms) if rooms else (room not in _BESIDE):
            whole.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()


def _run(run: RunSpec, path: Path) -> RunOutcome:
    torch.set_num_threads(1)  # of what comes after the run, too
    outcome = outcome_of(run, train(run))
    write(outcome, run, path)
    return outcome


def outcome_of(run: RunSpec, result: Result) -> RunOutcome:
    """What is kept of a result. A diverged run has no bits per byte: infinitely many."""
    spec, steps, done = run.train, result.steps, result.ended == "done"
    held_out = tuple((evaluation.step, evaluation.loss) for evaluation in result.evaluations)
    return RunOutcome(
        ended=result.ended,
        tokens_per_step=spec.sequence * spec.micro_batch * spec.accumulate,
        flop_per_token=flop_per_token(result.model, spec.sequence),
        losses=tuple(step.loss for step in steps),
        max_logits=tuple(step.max_logit for step in steps),
        clipped_heads=tuple(step.clipped_heads for step in steps),
        imbalances=tuple(step.load_imbalance for step in steps),
        held_out=held_out,
        bits_per_byte=result.evaluations[-1].bits_per_byte if held_out and done else inf,
        entropies=entropies(result.model.named_parameters()),
        seconds=sum(step.seconds for step in steps),
    )


@torch.no_grad()
def entropies(named_parameters: Iterable[tuple[str, Tensor]]) -> dict[str, tuple[float, ...]]:
    """SVD entropy of all matrices in each parameter that Muon moves, by the parameter's name."""
    stacks = ((name, matrices(name, parameter)) for name, parameter in named_parameters)
    return {
        name: tuple(svd_entropy(stack_MRC).tolist())
        for name, stack_MRC in stacks
        if stack_MRC is not None
    }


def write(outcome: RunOutcome, run: RunSpec, path: Path) -> None:
    """Keep it, in one move, with the run that it is of."""
    facts = {"outcome": asdict(outcome), "run": run.model_dump(mode="json")}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_synced(path, json.dumps(facts))


def read(path: Path) -> RunOutcome | None:
    """The kept outcome; None where there is none, or nothing that can be understood."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))["outcome"]
        return TypeAdapter(RunOutcome).validate_python(facts)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot write to `{folder}`: {(error.strerror or str(error)).lower()}"
        raise UsageError([Problem("TW280", "--cache", message, "name another folder")]) from None


def named(run: RunT, home: Path, *also: str) -> RunT:
    """The run with a folder below `home` that is named after all it says, after torch's version,
    and after what else decides its numbers; where `home` is does not count."""
    facts = run.model_dump(mode="json")
    facts["train"].pop("output")
    output = str(home / "runs" / digest([*also, torch.__version__, facts], home=str(home)))
    return run.model_copy(update={"train": run.train.model_copy(update={"output": output})})


def digest(facts: Any, size: int = 8, home: str = "") -> str:
    """Of plain data, in hexadecimal; where `home` is does not count."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.blake2b(
        (text.replace(home, "") if home else text).encode(), digest_size=size
    ).hexdigest()


def trained(run: RunSpec) -> Path:
    """The folder of a run, which is trained to its end, or was."""
    assert run.train.output is not None
    torch.set_num_threads(1)
    train(run, existing="resume")
    return Path(run.train.output)


def kept(path: Path, kind: type[KeptT], make: Callable[[], KeptT]) -> KeptT:
    """What `make` gives, a dataclass; read from the file where it was made before."""
    write_text(path, lambda: json.dumps(asdict(cast("Any", make()))))
    return TypeAdapter(kind).validate_python(json.loads(path.read_text(encoding="utf-8")))


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """JSON lines, unless the file is there; its path."""
    return write_text(path, lambda: "".join(f"{json.dumps(row)}\n" for row in rows))


def write_text(path: Path, make: Callable[[], str]) -> Path:
    """A file in one move, unless it is there; its path."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_synced(path, make())
    return path


def settings_of(study: str) -> dict[str, Any]:
    """The settings of a study's runs: sections of values by dotted path."""
    return yaml_table(Path(__file__).with_name(f"{study}.yaml"))


def plans_of(study: str, kind: type[KeptT]) -> tuple[KeptT, KeptT]:
    """The plan of a study, and its quick one."""
    settings, adapter = settings_of(study), TypeAdapter(kind)
    full = settings["plan"]
    return adapter.validate_python(full), adapter.validate_python(full | settings["quick"])


def nested(words: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of values by dotted path.

    >>> nested({"train.steps": 3, "train.seed": 0, "start": "a"})
    {'train': {'steps': 3, 'seed': 0}, 'start': 'a'}
    """
    made: dict[str, Any] = {}
    for path, value in words.items():
        *parts, last = path.split(".")
        section = made
        for part in parts:
            section = section.setdefault(part, {})
        section[last] = value
    return made


def nano_with(words: Mapping[str, Any]) -> RunSpec:
    """Preset nano with other values by dotted path."""
    return load_run("nano", [f"{key}={value}" for key, value in words.items()])


@dataclass(frozen=True, slots=True)
class Scale:
    """What all runs of a study share."""

    warmup: ClassVar = 0.05
    """Share of the steps in which the learning rate rises, as in the preset."""
    decay: ClassVar = 0.4
    """Share of the steps in which it falls at the end, as in the preset."""
    fall: ClassVar = 30
    """How many times lower it ends, as in the preset."""
    base: RunSpec
    seeds: tuple[int, ...]
    evaluations: int = 10
    """Of each run, evenly spaced."""

    @property
    def steps(self) -> int:
        """Of a run at full length."""
        return self.base.train.steps

    @property
    def tokens_per_step(self) -> int:
        """Trained on."""
        train = self.base.train
        return train.sequence * train.micro_batch * train.accumulate

    def run(
        self, seed: int, lr: float, steps: int | None = None, decay: float = decay, **optimizer: Any
    ) -> RunSpec:
        """One run; `decay` is the share of its steps after the constant rate, `optimizer` are
        further fields of that section."""
        steps = steps or self.steps
        warmup, falling = max(1, round(steps * self.warmup)), round(steps * decay)
        schedule = {
            "warmup_steps": warmup,
            "constant_steps": steps - warmup - falling,
            "decay_steps": falling,
            "final_lr": lr / self.fall,
        }
        train = {"steps": steps, "seed": seed, "evaluate_every": max(1, steps // self.evaluations)}
        facts = self.base.model_dump(mode="json")
        facts["schedule"] |= schedule
        facts["train"] |= train
        facts["data"] |= {"seed": seed}
        facts["optimizer"] |= {"lr": lr} | optimizer
        return RunSpec.model_validate(facts)


def nano(
    *, quick: bool, steps: int, seeds: int = 3, sequence: int = 256, evaluations: int = 10
) -> Scale:
    """Preset nano with its 1,024 tokens per step. Quick: a look in seconds at whether a study
    runs; it finds nothing."""
    micro_batch, judged = 1024 // sequence, 96 * 256 // sequence
    if quick:
        steps, seeds, sequence, micro_batch, judged = 20, 1, 64, 4, 8
    words = {
        "steps": steps,
        "sequence": sequence,
        "micro_batch": micro_batch,
        "evaluate_sequences": judged,
        "final_sequences": judged,
        "checkpoint_every": 0,
        "device": "cpu",
        "threads": 1,
    }
    run = load_run("nano", [f"train.{key}={value}" for key, value in words.items()])
    return Scale(run, tuple(range(seeds)), evaluations)


def with_experts(run: RunSpec, experts: int) -> RunSpec:
    """The run with another number of routed experts in each layer that has any."""
    assert run.model.moe is not None
    moe = run.model.moe.model_copy(update={"experts": experts})
    return run.model_copy(update={"model": run.model.model_copy(update={"moe": moe})})
