"""What a run changes: model, optimizer, place in the text, and how far it is."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from reference.checkpoint import Snapshot
from reference.checkpoint import save as save_checkpoint
from reference.config import RunSpec
from reference.data.loader import Batch, Loader
from reference.data.prepare import prepare
from reference.data.prepared import Prepared
from reference.memory.optimizer_states import OptimizerStates
from reference.metrics import Metrics
from reference.model import Transformer
from reference.model.initialize import initialize
from reference.optim.diagnostics import spectra
from reference.optim.muonclip import MuonClip
from reference.trainer.flop import peak_flop_per_s
from reference.trainer.folder import CHECKPOINTS
from reference.trainer.settings import DTYPES
from reference.trainer.stages import Stage
from reference.trainer.state import tensors_of


@dataclass(slots=True)
class Trainee:
    """The state of a run between two steps, and the device that it is on."""

    model: Transformer
    optimizer: MuonClip
    prepared: Prepared
    loader: Loader
    peak_flop_per_s: float | None
    """Of the device's datasheet; None where it is not known."""
    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Tokens trained on."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.embedding.weight.device

    def enter(self, stage: Stage) -> None:
        """Take the positions and batches of a stage; weights and place in the text stay."""
        self.model.stretch(stage.rope)
        self.loader = self.loader.with_sequences(stage.sequence, stage.micro_batch)

    def next_batch(self) -> Batch:
        """Tokens and targets of the next micro-batch, [B, T] each, on the device."""
        tokens_BT, targets_BT = next(self.loader)
        return tokens_BT.to(self.device), targets_BT.to(self.device)

    def reset_counts(self) -> None:
        """Forget maximum logits and expert loads: they belong to one step."""
        for attention in self.model.attentions():
            attention.reset_max_logit()
        for router in self.model.routers():
            router.reset_load()

    def load_imbalance(self) -> float:
        """Tokens of the fullest expert over the mean, in the worst layer; 0 without experts."""
        loads = [router.load_E.float() for router in self.model.routers()]
        return max(((one.max() / one.mean()).item() for one in loads), default=0.0)

    def spectra(self) -> dict[str, dict[str, float]]:
        """Largest spectral norm and mean SVD entropy of the weights of each role."""
        found = spectra(self.model.named_parameters())
        return {role: asdict(spectrum) for role, spectrum in found.items()}

    def peak_bytes(self) -> int:
        """The most device memory so far on CUDA, else of the process's resident memory."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        import resource  # noqa: PLC0415  not on Windows, where CUDA may be all there is

        unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes on Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def build(run: RunSpec, device: torch.device) -> Trainee:
    """The run before its first step."""
    prepared = prepare(run.data, run.model.vocab)
    dtype = DTYPES[run.train.precision]
    model = Transformer(run.model, device=device, dtype=dtype)
    initialize(model, run.train.seed)
    states = OptimizerStates(run.memory)
    optimizer = MuonClip(model.named_parameters(), run.optimizer, states)
    loader = Loader(prepared.training, run.train.sequence, run.train.micro_batch, run.data.seed)
    return Trainee(model, optimizer, prepared, loader, peak_flop_per_s(device, dtype))


def save(run: RunSpec, trainee: Trainee, log: Metrics) -> None:
    """Write a checkpoint, where the run writes anything."""
    if run.train.output is None:
        return
    log.sync()  # on resume the log must reach as far as the checkpoint
    facts = {"tokens": trainee.tokens, "loader": trainee.loader.state_dict()}
    tensors = tensors_of(trainee.model, trainee.optimizer)
    snapshot = Snapshot(trainee.step, tensors, facts, run.model_dump(mode="json"))
    path = save_checkpoint(Path(run.train.output) / CHECKPOINTS, snapshot, run.train.keep)
    log.event("checkpoint", trainee.step, name=path.name)
