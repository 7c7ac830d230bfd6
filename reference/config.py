"""The configuration of a run: what is trained, on what, how, for how long.

The model is the simulator's (`twin.spec.model`, by catalog name or written out), the memory policy
too; data and optimizer declare their sections beside their code. Every field has its meaning here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, Strict, ValidationInfo, field_validator

from reference.number_formats import Precision, fastest
from reference.optim.spec import OptimizerSpec, ScheduleSpec
from reference.parallel.mesh import ParallelSpec
from reference.text.spec import DataSpec, DialogsSpec
from twin.errors import FieldError, Problem, UsageError
from twin.loading.load import load_config
from twin.loading.tree import hint
from twin.spec.base import Count, Flag, Ratio, Spec, Whole
from twin.spec.memory import MemorySpec
from twin.spec.model import ModelSpec

PRESETS: Final = Path(__file__).with_name("presets")
"""Configurations that a bare name stands for."""

LearningRate = Annotated[float, Strict(), Field(gt=0, le=1)]
"""What an update is multiplied with."""
Small = Annotated[float, Strict(), Field(ge=0, le=1)]
"""A rate or coefficient; 0 turns its cause off."""
Temperature = Annotated[float, Field(ge=0, le=10)]
"""Of sampled answers; 0: the likeliest token."""


class ProcessSpec(Spec):
    """Where a trainer runs, in which precision, and what it keeps."""

    seed: Whole = 0
    """Of the first weights, where none are started from."""
    output: str | None = None
    """Folder of metrics and checkpoints; null: runs/, the kind of run and the configuration's name
    on the command line, and nothing is written from a program."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a device."""
    precision: Precision = Field(default_factory=lambda known: fastest(known.get("device", "auto")))
    """Of parameters and activations; masters, gradients, optimizer states, norms, softmax, routing
    and loss are fp32 in both. fp64: all of it, for proofs. Left out: bf16, or fp32 on a CPU that
    has no instructions for bf16."""
    threads: Annotated[Count, Field(le=1024)] = 1
    """CPU threads; another number may round otherwise, so that a run is repeated exactly with the
    same one only; several ranks of one machine share its cores out."""
    deterministic: Flag = True
    """Only algorithms that give the same result twice; may cost speed on CUDA."""
    keep: Count = 2
    """Newest checkpoints that are kept."""


class TrainSpec(ProcessSpec):
    """The steps, what is kept of them, and where they run."""

    steps: Count
    """Optimizer steps before the stages."""
    sequence: Annotated[Count, Field(le=10_000_000)]
    """Tokens per sequence."""
    micro_batch: Count
    """Sequences per forward and backward pass."""
    accumulate: Count = 1
    """Micro-batches per step, of all replicas together; gradients are summed in fp32."""
    checkpoint_every: Whole = 100
    """Steps from checkpoint to checkpoint; 0: only when the run ends."""
    evaluate_every: Whole = 100
    """Steps between evaluations; 0: only at the end of each stage."""
    evaluate_sequences: Whole = 32
    """Held-out sequences of each of them; 0: none."""
    final_sequences: Whole | None = None
    """Held-out sequences of the evaluation at the end of each stage; null: all."""
    spectra_every: Whole = 0
    """Steps between looks at the weights' spectral norms and SVD entropies; 0: none."""
    timeline: Flag = False
    """Write what ran when, per rank, into the folder `timeline`."""
    profile: Whole = 0
    """Steps, from the third on, that torch's profiler traces, per rank, into the folder `profile`;
    0: none."""
    pace: str | None = None
    """File of the least seconds of each pass: the ranks sleep for the rest, as if their devices
    were that slow."""
    tensorboard: Flag = False
    """Write TensorBoard's files, too."""


class BalanceSpec(Spec):
    """What keeps the load of experts even. K2's report gives no numbers; these are DeepSeek-V3's
    (arXiv:2412.19437, sections 2.1.2 and 4.2)."""

    bias_rate: Small = 1e-3
    """How far a router's bias moves per step, against the load."""
    forced: Flag = False
    """Tokens visit all experts in turn, whatever the router says: for measurements of a balanced
    load, not for training."""
    sequence_loss: Small = 0.0
    """Coefficient of the sequence-wise balance loss; 0: none (DeepSeek-V3: 1e-4)."""


class StageSpec(Spec):
    """Further steps with other sequences, at a learning rate of their own, weights and optimizer as
    they are: Kimi K2's anneal and long-context stages (arXiv:2507.20534, section 2.5). It names a
    first and a last rate, 2e-5 and 7e-6, and no shape: the straight line is OURS."""

    name: str
    """What metrics call it."""
    steps: Count
    """Optimizer steps."""
    sequence: Annotated[Count, Field(le=10_000_000)]
    """Tokens per sequence."""
    micro_batch: Count
    """Sequences per forward and backward pass."""
    accumulate: Count = 1
    """Micro-batches per step."""
    lr: LearningRate
    """Learning rate of the first step."""
    final_lr: LearningRate | None = None
    """Of the last step, on a straight line; null: `lr` in every step."""
    yarn: Ratio | None = None
    """Factor by which YaRN stretches positions from here on; null: as before. Its other numbers are
    the model's, its original context `train.sequence` where that has none."""


class TaskChoice(Spec):
    """A task of an evaluation, and the fields of it to change."""

    name: str
    """A built-in task, or the YAML file of one."""
    limit: Count | None = None
    """The first cases only."""
    samples: Count | None = None
    """Answers to each case."""
    ks: tuple[Count, ...] | None = None
    """pass@k for these k."""
    temperature: Temperature | None = None
    """Of answers."""
    output_tokens: Count | None = None
    """Tokens of an answer at most."""
    context_tokens: Count | None = None
    """Tokens of prompt and answer."""

    @property
    def changes(self) -> Mapping[str, Any]:
        """The fields of the task to change."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


def _named(value: object) -> object:
    """Task names as mappings."""
    if isinstance(value, list | tuple):
        return tuple({"name": one} if isinstance(one, str) else one for one in value)
    return value


TaskChoices = Annotated[tuple[TaskChoice, ...], BeforeValidator(_named)]


class EverySpec(Spec):
    """Tasks that a training run asks its own model from time to time."""

    every: Whole = 0
    """Steps between two evaluations; 0: none."""
    tasks: TaskChoices = Field(default=(TaskChoice(name="copying"),), min_length=1)
    """What is asked."""
    limit: Count | None = 32
    """Cases of each task at most."""
    seed: Whole = 0
    """Of sampled answers."""


class UpdatesSpec(Spec):
    """The sections of every configuration that updates weights."""

    optimizer: OptimizerSpec = OptimizerSpec()
    """MuonClip, Muon or AdamW, and QK-clip."""
    schedule: ScheduleSpec = ScheduleSpec()
    """Learning rate over the optimizer's steps."""
    balance: BalanceSpec = BalanceSpec()
    """What keeps the load of experts even."""
    memory: MemorySpec = MemorySpec()
    """What is computed again, packed or sent away."""


class LoopSpec(UpdatesSpec):
    """The sections of every configuration of the trainer's loop."""

    train: TrainSpec
    """Steps, batches, precision, output."""
    parallel: ParallelSpec = ParallelSpec()
    """How the work is cut over the ranks."""
    evaluate: EverySpec = EverySpec()
    """Tasks that the model is asked while it trains."""
    stages: tuple[StageSpec, ...] = ()
    """What follows `train.steps`."""


class RunSpec(LoopSpec):
    """One run of the trainer."""

    model: ModelSpec
    """The architecture; a catalog model by name."""
    data: DataSpec = Field(default_factory=DataSpec)
    """text, tokenizer, what is held out."""
    dialogs: DialogsSpec | None = None
    """What is learned instead of `data`, which gives the tokenizer; null: `data`."""
    start: str | None = None
    """Folder of a run, or one of its checkpoints, whose weights are the first ones; null: drawn
    from `train.seed`."""

    @field_validator("stages")
    @classmethod
    def _names_differ(
        cls, stages: tuple[StageSpec, ...], info: ValidationInfo
    ) -> tuple[StageSpec, ...]:
        del info
        names = [MAIN, *(stage.name for stage in stages)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            message = f"two stages are called `{twice}`"
            raise FieldError("TW017", message, f"`{MAIN}` is what `train` is called; rename one")
        return stages


MAIN: Final = "train"
"""The stage that `train` describes."""


def load_run(config: str | Path, overrides: Sequence[str] = ()) -> RunSpec:
    """The run of a file, or of a preset by its name, under `a.b=value` overrides.

    Raises UsageError where there is no such file or an override is none, and ScenarioError with
    all that is wrong in the configuration, each mistake with its place.
    """
    return load_config(RunSpec, find_config(config), overrides, {("model",): "models"})


def find_config(config: str | Path, folder: Path = PRESETS) -> Path:
    """The file that a path or the name of a preset in `folder` means. Raises UsageError where there
    is none."""
    path = Path(config)
    if path.is_file():
        return path
    preset = folder / f"{config}.yaml"
    if path.name == str(config) and preset.is_file():
        return preset
    message = f"there is no run configuration `{config}`"
    fix = hint(str(config), presets(folder), "give a file, or one of the presets")
    raise UsageError([Problem("TW230", "", message, fix)])


def presets(folder: Path = PRESETS) -> tuple[str, ...]:
    """The names of the presets in a folder, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))
