"""What a run's model is asked is computed as it was trained, cut where it says so."""

import json
from math import log
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from reference.dialog import Dialog, Message
from reference.evaluate.subject import Prompt
from reference.evaluate.trained import nats_of, open_trained
from reference.generate.request import ChatRequest, Sampling

GREEDY = Sampling(temperature=0.0, max_tokens=6)


@pytest.fixture(scope="module")
def subject(run):
    return open_trained(Path(run.train.output))


def _nats(subject, ids, start):
    with torch.no_grad():
        logits_TW = subject.engine.model(torch.tensor([ids]))[0].double()
    each = functional.cross_entropy(logits_TW[:-1], torch.tensor(ids[1:]), reduction="none")
    return float(each[start - 1 :].sum())


def test_a_continuation_has_the_nats_of_the_models_own_forward(subject):
    found = subject.fits([("7 times", " 8"), ("", "is"), ("7 times ", "8")], None)
    end = subject.prepared.tokenizer.end
    wanted = [_nats(subject, [end, *b"7 times 8"], 8), _nats(subject, [end, *b"is"], 1)]
    assert [one.nats for one in found] == pytest.approx([*wanted, wanted[0]], rel=1e-5)
    assert [one.tokens for one in found] == [2, 2, 2]


def test_a_long_context_is_cut_at_its_beginning_and_counted(subject):
    (long,) = subject.fits([("x" * 40 + "7 times", " 8")], 8)
    ids = list(b"7 times 8")
    assert long.cut == 1 + 40
    assert long.nats == pytest.approx(_nats(subject, ids, 7), rel=1e-5)


def test_a_prompt_is_cut_to_what_the_answer_leaves_and_counted(subject):
    cut, whole = subject.write([Prompt("x" * 30 + "ab", GREEDY, 10), Prompt("ab", GREEDY, 10)])
    assert (cut.cut, whole.cut) == (1 + 32 - 4, 0)
    assert (cut.reply.tokens.prompt, whole.reply.tokens.prompt) == (4, 3)
    assert cut.reply.finish == "length"


def test_a_dialogue_that_is_too_long_is_refused_and_the_others_are_answered(subject):
    short, long = Dialog((Message("user", "a"),)), Dialog((Message("user", "a" * 90),))
    found = subject.write([Prompt(one, GREEDY, 60) for one in (short, long, short)])
    assert [one.reply is None for one in found] == [False, True, False]


def test_bits_per_byte_of_held_out_text_are_those_that_training_reports(subject, run):
    lines = Path(run.train.output, "metrics.jsonl").read_text().splitlines()
    told = [row for row in map(json.loads, lines) if row["kind"] == "evaluation"][-1]
    batches = subject.prepared.held_out(run.train.sequence, 4)
    bits = nats_of(subject.engine.model, batches) / log(2)
    assert bits / subject.prepared.held_out_bytes == pytest.approx(told["bits_per_byte"], rel=1e-6)


def test_a_text_is_read_whole_with_its_end_however_long_it_is(subject):
    text = subject.held_out[0]
    (found,) = subject.read([text], None)
    assert (found.bytes, found.tokens) == (len(text.encode()), len(text.encode()) + 1)
    (at_once,) = subject.read([text], 512)
    end = subject.prepared.tokenizer.end
    ids = [end, *text.encode(), end]
    assert len(ids) < 512
    assert at_once.nats == pytest.approx(_nats(subject, ids, 1), rel=1e-5)
    assert found.nats != at_once.nats  # windows of 16 tokens see less


def test_the_same_prompts_get_the_same_answers_whatever_was_asked_before(subject):
    drawn = Sampling(temperature=1.0, max_tokens=12, seed=4)
    prompts = [Prompt(text, drawn, None) for text in ("1 times", "2 times 3", "")]
    dialogs = [Prompt(Dialog((Message("user", "a"),)), drawn, 80)]
    subject.begin()
    first = subject.write([*prompts, *dialogs])
    subject.write(prompts[::-1])
    subject.begin()
    assert subject.write([*prompts, *dialogs]) == first


def test_the_decoder_tells_all_that_it_wrote_and_a_grammar_holds_it_where_asked(subject, run):
    request = ChatRequest((Message("user", "a"),), (), Sampling(temperature=1.0, max_tokens=20))
    subject.generator.window = 80
    assert subject.generator.complete(request).raw is not None
    held = open_trained(Path(run.train.output), constrained=True)
    held.generator.window = 80
    reply = held.generator.complete(request)
    assert not reply.calls
    assert "<|im_user|>" not in (reply.raw or "")


def test_the_identity_tells_other_weights(subject, run):
    with torch.no_grad():
        weight = subject.engine.model.final_norm.gain
        same = open_trained(Path(run.train.output))
        assert same.identity == subject.identity
        weight_ = same.engine.model.final_norm.gain
        weight_.add_(1e-3)
        assert not torch.equal(weight, weight_)
    from reference.evaluate.trained import digest_of  # noqa: PLC0415

    assert digest_of(same.engine.model) != subject.identity["weights"]
