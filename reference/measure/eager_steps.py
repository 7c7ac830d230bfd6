"""Whole training steps of Hugging Face's models in eager PyTorch, as scenarios say them.

    python -m reference.measure.eager_steps FOLDER --output steps.jsonl

Each scenario of the folder names a model, a batch and a memory policy for one GPU. Its step runs as
plain loops of Transformers do: bf16 weights, scaled_dot_product_attention, PyTorch's cross-entropy
on fp32 logits, gradients clipped, AdamW on fp32 masters, the loss read every step. `twin run` says
beforehand what a step takes; a line of the output says what it took, and the peaks of memory.

Masters are updated by the fused kernel in buckets of so many parameters, whose bf16 gradients
become fp32 for as long as the bucket lasts.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor, nn

from reference.convert.config import config_of
from reference.measure.clock import finish
from twin.loading import load

BUCKET: Final = 1 << 27
"""Parameters whose gradients are fp32 at a time."""
WARM: Final = 3
FEWEST: Final = 5
"""Steps before the first that counts, and steps that count."""


class Masters:
    """AdamW on fp32 copies of bf16 parameters."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.buckets: list[tuple[list[nn.Parameter], list[nn.Parameter], torch.optim.AdamW]] = []
        for own in _bucketed(self.parameters):
            masters = [nn.Parameter(one.detach().float()) for one in own]
            self.buckets.append((own, masters, torch.optim.AdamW(masters, lr=1e-5, fused=True)))

    def step(self) -> None:
        """Clip, update, and forget the gradients."""
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for own, masters, optimizer in self.buckets:
            for parameter, master in zip(own, masters, strict=True):
                assert parameter.grad is not None
                master.grad = parameter.grad.float()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                torch._foreach_copy_([*own], [*masters])  # pyright: ignore[reportPrivateImportUsage]
        for parameter in self.parameters:
            parameter.grad = None


def _bucketed(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        bucket.append(parameter)
        if sum(one.numel() for one in bucket) >= BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def model_of(scenario: Any, device: torch.device) -> nn.Module:
    """Transformers' module of a scenario's model, its weights drawn anew."""
    # Its import takes seconds, and its types take pyright half a minute.
    transformers = import_module("transformers")
    fields = config_of(scenario.model, {"use_cache": False})
    kind = fields.pop("model_type")
    config = transformers.AutoConfig.for_model(kind, **fields)
    chosen = {"attn_implementation": "sdpa"}
    if scenario.parallel.dispatcher == "loop" and scenario.model.moe is not None:
        # One after the other, as Transformers ran experts before its fifth version.
        chosen["experts_implementation"] = "eager"
    with device:
        made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, **chosen)
    if "full" in scenario.memory.recompute:
        made.gradient_checkpointing_enable({"use_reentrant": False})
    return made.train()


def step_of(scenario: Any, model: nn.Module, device: torch.device) -> Callable[[], float]:
    """One training step on one GPU; returns its loss."""
    optimizer = Masters(list(model.parameters()))
    rows, length = scenario.parallel.micro_batch, scenario.train.sequence
    passes = scenario.train.global_batch // (rows * length)
    batch = torch.randint(scenario.model.vocab, (passes, rows, length), device=device)

    def step() -> float:
        total: Tensor | None = None
        for tokens in batch:
            loss: Tensor = model(input_ids=tokens, labels=tokens).loss / passes
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
        optimizer.step()
        assert total is not None
        return float(total)

    return step


def measure(path: Path, seconds: float, device: torch.device) -> dict[str, Any]:
    """What the step of a scenario takes."""
    scenario: Any = load(path)
    torch.manual_seed(0)
    cuda = device.type == "cuda"
    started = time.perf_counter()
    model = model_of(scenario, device)
    step = step_of(scenario, model, device)
    for _ in range(WARM):
        step()
    finish(device)
    built = time.perf_counter() - started
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    collections: list[int] = []
    gc.callbacks.append(lambda phase, info: _count(collections, phase, info))
    taken: list[float] = []
    while len(taken) < FEWEST or sum(taken) < seconds:
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    gc.callbacks.pop()
    found = {
        "name": path.stem,
        "seconds": median(taken),
        "least": min(taken),
        "most": max(taken),
        "steps": len(taken),
        "full_collections": len(collections),
        "parameters": sum(one.numel() for one in model.parameters()),
        "built": built,
    }
    if cuda:
        found |= {
            "allocated": torch.cuda.max_memory_allocated(device),
            "reserved": torch.cuda.max_memory_reserved(device),
        }
    return found | _parts(scenario, model, device)


def _count(found: list[int], phase: str, info: dict[str, int]) -> None:
    if phase == "start" and info["generation"] == 2:
        found.append(1)


def _parts(scenario: Any, model: nn.Module, device: torch.device) -> dict[str, Any]:
    """Seconds of the host until a forward and a backward are issued, until they are over, and the
    objects that a forward keeps for Python's garbage collector."""
    shape = scenario.parallel.micro_batch, scenario.train.sequence
    tokens = torch.randint(scenario.model.vocab, shape, device=device)
    found: dict[str, list[float]] = {}
    kept = 0
    for _ in range(3):
        gc.collect()
        before = len(gc.get_objects())
        finish(device)
        marks = [time.perf_counter()]
        loss = model(input_ids=tokens, labels=tokens).loss
        marks.append(time.perf_counter())
        finish(device)
        marks.append(time.perf_counter())
        kept = len(gc.get_objects()) - before
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        finish(device)
        marks.append(time.perf_counter())
        for name, start, end in (
            ("forward_issued", 0, 1),
            ("forward", 0, 2),
            ("backward_issued", 3, 4),
            ("backward", 3, 5),
        ):
            found.setdefault(name, []).append(marks[end] - marks[start])
        model.zero_grad(set_to_none=True)
        del loss
    return {name: median(each) for name, each in found.items()} | {"kept": kept}


def main(words: Sequence[str] | None = None) -> int:
    """Measure every scenario of a folder; a failure is a line, too."""
    parser = argparse.ArgumentParser("python -m reference.measure.eager_steps", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3.0, help="time each step so long [3]")
    parser.add_argument(
        "--budget", type=float, default=1e9, help="start no step behind these [none]"
    )
    parser.add_argument("--only", default="", help="run names that hold one of these words [all]")
    options = parser.parse_args(words)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    began = time.perf_counter()
    with options.output.open("a", encoding="utf-8") as lines:
        for path in sorted(options.folder.glob("*.yaml")):
            if path.stem == "base" or not any(one in path.stem for one in options.only.split(",")):
                continue
            if time.perf_counter() - began > options.budget:
                break
            try:
                found = measure(path, options.seconds, device)
            except Exception as error:  # noqa: BLE001  the next may run
                found = {"name": path.stem, "error": f"{type(error).__name__}: {error}"[:500]}
            lines.write(json.dumps(found) + "\n")
            lines.flush()
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
