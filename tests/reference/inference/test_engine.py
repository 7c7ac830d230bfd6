"""What an engine tells does not depend on who else it serves, nor on its memory."""

from __future__ import annotations

import pytest
import torch

from reference.inference.request import QueueFullError, RefusedError, Sampling
from tests.reference.inference.small import asked, engine, ids, model, run, text, told
from twin.errors import UsageError

TEXTS = ["a", "to be or not to be", "x" * 70, "12 times 7 is 84.\n" * 4, "to be or not to do", "Q:"]
LONG = "the same beginning of many requests, in whole blocks. "


def alone(prompt: str, tokens: int = 12) -> list[int]:
    served = engine()
    number = served.add(asked(prompt, tokens))
    return ids(run(served), number)


def test_a_greedy_request_says_what_the_models_own_forward_says() -> None:
    said = alone("to be")
    tokens = list(b"to be")
    with torch.no_grad():
        for token in said:
            logits_W = model()(torch.tensor([tokens]))[0, -1]
            logits_W[267:] = -torch.inf
            assert token == int(logits_W.argmax())
            tokens.append(token)
    assert len(said) == 12


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"step_tokens": 7},
        {"running": 2},
        {"blocks": 12, "block_tokens": 8},
        {"blocks": 30, "block_tokens": 3, "step_tokens": 16},
        {"share_prefixes": False},
    ],
    ids=str,
)
def test_a_greedy_request_says_the_same_in_every_company_and_memory(fields) -> None:
    wanted = [alone(prompt) for prompt in TEXTS]
    served = engine(**fields)
    numbers = [served.add(asked(prompt)) for prompt in TEXTS[:4]]
    updates = served.step() + served.step()
    numbers += [served.add(asked(prompt)) for prompt in TEXTS[4:]]
    updates += run(served)
    assert [ids(updates, number) for number in numbers] == wanted
    assert served.scheduler.pool.used == 0


def test_a_sampled_request_says_the_same_in_every_company() -> None:
    drawn = Sampling(temperature=0.9, top_p=0.9, top_k=40, seed=5)
    wanted = ids(run_one(engine(), asked("to be", sampling=drawn)), 0)
    served = engine(blocks=12, block_tokens=8)
    for prompt in TEXTS:
        served.add(asked(prompt))
    number = served.add(asked("to be", sampling=drawn))
    assert ids(run(served), number) == wanted


def test_who_is_preempted_says_the_same_and_no_block_is_held_twice() -> None:
    served = engine(blocks=9, block_tokens=8)
    numbers = [served.add(asked(prompt, 30)) for prompt in TEXTS[:2] * 2]
    most, updates = 0, []
    while not served.idle:
        updates += served.step()
        held = [block for one in served.scheduler.running for block in one.blocks]
        assert len(held) >= served.scheduler.pool.used == len(set(held))
        most = max(most, served.scheduler.pool.used)
    wanted = [alone(prompt, 30) for prompt in TEXTS[:2]]
    assert [ids(updates, number) for number in numbers] == wanted * 2
    assert most == 9
    assert served.scheduler.pool.used == 0
    assert served.scheduler.preemptions > 0


def test_a_known_prefix_is_not_computed_again_and_changes_no_logit() -> None:
    served = engine()
    first = served.add(asked(LONG + "one"))
    before = run(served)
    spent = served.counts.computed_tokens
    second = served.add(asked(LONG + "one"))
    after = run(served)
    shared = 16 * ((len(LONG) + 3 - 1) // 16)
    assert {one.cached for one in before if one.request == first} == {0}
    assert {one.cached for one in after} == {shared}
    assert served.counts.computed_tokens - spent == spent - shared
    pairs = zip(told(before, first), told(after, second), strict=True)
    assert all(
        one.token == two.token and abs(one.logprob - two.logprob) < 1e-4 for one, two in pairs
    )


def test_choices_share_their_prompt_and_differ_in_what_they_say() -> None:
    served = engine()
    number = served.add(asked(LONG, choices=4, sampling=Sampling(seed=3)))
    updates = run(served)
    said = {tuple(ids(updates, number, choice)) for choice in range(4)}
    assert len(said) == 4
    assert {one.cached for one in updates if one.choice} == {16 * ((len(LONG) - 1) // 16)}


def test_log_probabilities_are_those_of_the_models_own_forward() -> None:
    served = engine()
    number = served.add(asked("to be", top=3, sampling=Sampling(temperature=0.7, top_k=20)))
    found = told(run(served), number)
    tokens = [*b"to be", *(one.token for one in found)]
    with torch.no_grad():
        logits_TW = model()(torch.tensor([tokens]))[0].double()
    for at, one in enumerate(found, 4):
        wanted_W = logits_TW[at].log_softmax(0)
        assert one.logprob == pytest.approx(float(wanted_W[one.token]), abs=1e-4)
        assert [token for token, _ in one.top] == wanted_W.topk(3).indices.tolist()
        cut_W = logits_TW[at].clone()
        cut_W[267:] = -torch.inf
        kept = (cut_W / 0.7).topk(20)
        sampled = dict(zip(kept.indices.tolist(), kept.values.log_softmax(0).tolist(), strict=True))
        assert one.sampled_logprob == pytest.approx(sampled[one.token], abs=1e-4)


def test_a_stop_string_ends_a_choice_and_is_not_told() -> None:
    whole = engine()
    said = text(run_one(whole, asked("to be", 40)), 0)
    stop = said[5:8]
    served = engine()
    updates = run_one(served, asked("to be", 40, stop=("never", stop)))
    assert text(updates, 0) == said[: said.find(stop)]
    assert updates[-1].finish == "stop"


def test_the_coldest_temperature_is_greedy() -> None:
    served = engine()
    served.add(asked("to be", 6))
    served.add(asked("to be", 6, sampling=Sampling(temperature=1e-320, top_p=1e-320)))
    updates = run(served)
    assert ids(updates, 0) == ids(updates, 1)


def test_a_bug_in_one_choice_ends_no_other(monkeypatch, capsys) -> None:
    served = engine()
    served.add(asked("a", 6))
    served.add(asked("b", 6))
    draw = served._draw

    def breaks(sequence, logits_W):
        return 1 // 0 if sequence.number == 1 else draw(sequence, logits_W)

    monkeypatch.setattr(served, "_draw", breaks)
    ends = {update.request: update.finish for update in run(served) if update.finish}
    assert ends == {0: "length", 1: "error"}
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_cancelled_request_leaves_at_once_and_the_others_stay() -> None:
    served = engine()
    first, second = (served.add(asked(prompt, 20)) for prompt in TEXTS[:2])
    served.step()
    served.cancel(first)
    updates = run(served)
    assert {one.request for one in updates} == {second}
    assert served.scheduler.pool.used == 0


def test_new_weights_take_over_in_the_middle_of_a_request() -> None:
    served = engine()
    own = {name: tensor.clone() for name, tensor in model().state_dict().items()}
    try:
        number = served.add(asked("to be", 10))
        updates = [*served.step(), *served.step()]
        assert served.update_weights(model(1).state_dict(), version=7) == 7
        updates += run(served)
        tokens = [*b"to be", *ids(updates, number)]
        assert [one.weights for one in told(updates, number)] == [0] * 2 + [7] * 8
        with torch.no_grad():
            logits_W = model(1)(torch.tensor([tokens[:-1]]))[0, -1, :267]
        assert tokens[-1] == int(logits_W.argmax())
        fresh = served.add(asked("to be" * 10, 1))
        assert {one.cached for one in run(served) if one.request == fresh} == {0}
    finally:
        served.update_weights(own)


def test_wrong_weights_change_nothing() -> None:
    served = engine()
    weights = dict(model(1).state_dict())
    weights["more"] = weights.pop("final_norm.gain")
    with pytest.raises(UsageError, match=r"TW490.*`final_norm.gain`, `more`"):
        served.update_weights(weights)
    assert served.weights == 0
    assert alone("to be") == ids(run_one(served, asked("to be")), 0)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (asked(""), "prompt"),
        (asked("a" * 90, 20), "max_tokens"),
        (asked("a", 0), "max_tokens"),
        (asked("a", choices=64 + 256 + 1), "n"),
    ],
)
def test_what_can_never_be_served_is_refused_by_field(request_, field) -> None:
    with pytest.raises(RefusedError) as refused:
        engine(blocks=10, block_tokens=10).add(request_)
    assert refused.value.field == field


def test_a_full_line_refuses() -> None:
    served = engine(queue=0, running=2)
    served.add(asked("a", choices=2))
    with pytest.raises(QueueFullError):
        served.add(asked("a"))


def run_one(served, request_):
    served.add(request_)
    return run(served)


def test_nothing_ends_a_choice_before_its_least_number_of_tokens() -> None:
    """Every word but one ends it; so it says that one until it may end."""
    first = alone("to be")[0]
    other = 65 if first != 65 else 66
    ends = frozenset(range(267)) - {other}
    free = asked("to be", 20, stop_tokens=ends)
    assert ids(run_one(engine(), free), 0) == [first]
    held = ids(run_one(engine(), asked("to be", 20, stop_tokens=ends, min_tokens=6)), 0)
    assert held[:6] == [other] * 6
    assert len(held) <= 20
