"""What a step learns: the objective's own gradient, through rows, micro-batches and the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from reference.parallel.world import joined
from reference.rl.batches import Batches, ResponseRow, batch_of, row_of, width_of
from reference.rl.objective import (
    ObjectiveSpec,
    RewardGroup,
    kimi_k15_weights,
    learn,
    squared_error,
    squared_error_weights,
)
from reference.rl.records import NOBODY, PromptGroup, Response
from reference.rl.spec import RlSpec, run_of
from reference.trainer.settings import settings
from reference.trainer.trainee import Trainee, build
from tests.reference.rl.mini import spec
from tests.reference.rl.worlds import CHARACTERS, responses


def written(seed: int, each: int = 3) -> list[PromptGroup]:
    """Responses with several turns and two versions, of any words and rewards."""
    chance = torch.Generator().manual_seed(seed)
    found = responses(CHARACTERS, each)
    for one in found:
        for version in (3, NOBODY, 4, NOBODY):
            count = int(torch.randint(1, 4, (1,), generator=chance))
            ids = torch.randint(0, 256, (count,), generator=chance).tolist()
            own = version != NOBODY
            one.tokens += ids
            one.versions += [version] * count
            one.policy += [-5.0 - at / 8 if own else 0.0 for at in range(count)]
            one.behaviour += [-5.5 - at / 8 if own else 0.0 for at in range(count)]
        one.reward = float(torch.rand(1, generator=chance))
    return [
        PromptGroup(at, "", found[at * each : (at + 1) * each]) for at in range(len(found) // each)
    ]


@contextmanager
def trainee_of(given: RlSpec) -> Iterator[tuple[Any, Trainee]]:
    run = run_of(given)
    with settings(run.train) as device, joined(run.parallel, 1, device) as world:
        made = build(run, world, device)
        made.loader = Batches("")
        yield run, made


def gradients(
    trainee: Trainee, monkeypatch: pytest.MonkeyPatch, *arguments: Any, **fields: Any
) -> dict[str, torch.Tensor]:
    """Those of a step of the trainer, before it moves anything."""
    found: dict[str, torch.Tensor] = {}
    (model,) = trainee.models

    def keep() -> None:
        named = model.named_parameters()
        found.update({name: one.grad.clone() for name, one in named if one.grad is not None})

    monkeypatch.setattr(trainee.optimizer, "move", keep)
    learn(*arguments, **fields)
    return found


def log_probability(model: Any, one: Response, least: int) -> torch.Tensor:
    """Of the learned tokens of a response, one after the other, without batches or padding."""
    ids = torch.tensor([[*one.prompt, *one.tokens]])
    logits = model(ids)[0].log_softmax(-1)
    places = [
        len(one.prompt) + at for at, version in enumerate(one.versions) if version >= max(least, 0)
    ]
    return torch.stack([logits[place - 1, ids[0, place]] for place in places]).sum()


@pytest.mark.parametrize("learn_from", ["all", "newest"])
@pytest.mark.parametrize("old", ["behaviour", "policy"])
def test_the_gradient_of_the_training_path_is_the_objectives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learn_from: str, old: str
) -> None:
    """In float64, against autograd of the formula: no rows, weights, micro-batches or slopes."""
    groups = written(1)
    objective = {"learn_from": learn_from, "old": old, "kl_weight": 0.3, "baseline": "log_z"}
    given = spec(tmp_path, train={"precision": "fp64", "micro_batch": 4}, objective=objective)
    with trainee_of(given) as (run, trainee):
        (model,) = trainee.models
        least = 4 if learn_from == "newest" else 0
        losses: list[torch.Tensor] = []
        for asked in groups:
            ratios: list[torch.Tensor] = []
            for one in asked.responses:
                then = one.behaviour if old == "behaviour" else one.policy
                known = sum(x for x, v in zip(then, one.versions, strict=True) if v >= least)
                ratios.append(log_probability(model, one, least) - known)
            rewards = torch.tensor([one.reward for one in asked.responses], dtype=torch.float64)
            losses.append(squared_error(RewardGroup(rewards, torch.stack(ratios)), 0.3, "log_z"))
        torch.stack(losses).mean().backward()
        wanted = {
            name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None
        }
        model.zero_grad()
        found = gradients(trainee, monkeypatch, run, trainee, groups, given.objective, newest=4)
    assert len(found) == len(wanted) > 20
    for name, one in found.items():
        torch.testing.assert_close(one, wanted[name], rtol=1e-9, atol=1e-12)


def test_k15s_gradient_is_k2s_over_twice_the_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = written(2)
    given = spec(tmp_path, train={"precision": "fp64"})
    found: list[dict[str, torch.Tensor]] = []
    for form in ("kimi_k2", "kimi_k15"):
        objective = ObjectiveSpec.model_validate({"form": form, "kl_weight": 0.05})
        with trainee_of(given) as (run, trainee):
            found.append(gradients(trainee, monkeypatch, run, trainee, groups, objective, newest=4))
    for name, k2 in found[0].items():
        torch.testing.assert_close(k2, 2 * 0.05 * found[1][name], rtol=1e-9, atol=1e-14)
    assert kimi_k15_weights is not squared_error_weights


def test_rows_of_a_micro_batch_change_nothing_but_the_order_of_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = written(3)
    found: list[dict[str, torch.Tensor]] = []
    for size in (1, 9):
        given = spec(tmp_path, train={"precision": "fp64", "micro_batch": size})
        with trainee_of(given) as (run, trainee):
            found.append(
                gradients(trainee, monkeypatch, run, trainee, groups, given.objective, newest=4)
            )
    for name, one in found[0].items():
        torch.testing.assert_close(one, found[1][name], rtol=1e-9, atol=1e-13)


def test_targets_are_what_weights_wrote_and_nothing_behind_the_last_of_it() -> None:
    one = written(4)[0].responses[0]
    row = row_of(one, "newest", 4)
    tokens_BT, targets_BT = batch_of([row], 40)
    place = len(one.prompt)
    wanted = {
        place + at - 1: token
        for at, (token, version) in enumerate(zip(one.tokens, one.versions, strict=True))
        if version == 4
    }
    found = {at: token for at, token in enumerate(targets_BT[0].tolist()) if token != -100}
    assert found == wanted
    assert row.ids[-1] == list(wanted.values())[-1]
    assert tokens_BT[0, :place].tolist() == list(one.prompt)


def test_a_response_of_earlier_weights_alone_teaches_nothing_where_only_the_newest_count() -> None:
    one = written(5)[0].responses[0]
    row = row_of(one, "newest", 9)
    _, targets_BT = batch_of([row], row.width)
    assert (targets_BT == -100).all()


def test_rows_end_at_a_multiple_that_sequences_have_room_for() -> None:
    """Of 64: rows of 90 and 20 tokens have 128, and with room for 100 no more than that."""
    rows = [ResponseRow(tuple(range(size + 1)), (), (), ()) for size in (90, 20)]
    assert [width_of(rows, 64, most) for most in (256, 100)] == [128, 100]
    assert width_of(rows, 1, 256) == 90
