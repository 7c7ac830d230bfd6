"""Fine-tuning is the loop of pre-training with another's weights and masked targets."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from reference.convert.folder import Trained
from reference.ending import Stop
from reference.inference.local import load_engine
from reference.inference.spec import EngineSpec
from reference.metrics import StepMetrics
from reference.model import Transformer
from reference.sft import main
from reference.text.dialogs import epoch_of, prepare_dialogs
from reference.text.loader import IGNORED
from reference.text.prepare import prepare
from reference.train import Result, train
from tests.reference.sft.conftest import Tune
from tests.reference.sft.dialogues import ROOM, row, write
from twin.errors import UsageError


def started(trained: Path) -> Transformer:
    """The model of the run that fine-tuning begins from."""
    found = Trained(trained)
    model = Transformer(found.model)
    model.load_state_dict({name: found.read(name) for name in found.stored})
    return model.eval()


def test_the_first_weights_are_the_other_runs_bit_by_bit(tune: Tune, trained: Path) -> None:
    # A rate as good as none: what is left is what it began with.
    nothing = tune("optimizer.lr=1.0e-30", "train.steps=1", "balance.bias_rate=0.0")
    model = train(nothing).model
    whole = started(trained).state_dict()
    assert all(torch.equal(tensor, whole[name]) for name, tensor in model.state_dict().items())


def test_the_loss_is_the_mean_over_learned_tokens_of_all_micro_batches(
    tune: Tune, trained: Path
) -> None:
    run = tune("train.steps=1", "train.output=null")
    assert run.dialogs is not None
    text = prepare(run.data, run.model.vocab)
    given = prepare_dialogs(run.dialogs, text, run.model.vocab, ROOM)
    loader, model = given.loader((ROOM, 1), 0), started(trained)
    nats: list[float] = []
    counts: list[int] = []
    for tokens_BT, targets_BT in (next(loader), next(loader)):
        places = (targets_BT[0] != IGNORED).nonzero().flatten().tolist()
        logs_TW = functional.log_softmax(model(tokens_BT)[0].double(), -1)
        nats += [-logs_TW[place, int(targets_BT[0, place])].item() for place in places]
        counts.append(len(places))
    assert counts[0] != counts[1]  # else means of means would be as good
    (step,) = train(run).steps
    assert step.loss == pytest.approx(sum(nats) / len(nats), rel=1e-6)


def test_alone_a_dialogue_sees_no_other(tune: Tune, trained: Path) -> None:
    model = started(trained)
    found: dict[str, list[float]] = {}
    for packing in ("alone", "shared"):
        run = tune(f"dialogs.packing={packing}")
        assert run.dialogs is not None
        text = prepare(run.data, run.model.vocab)
        given = prepare_dialogs(run.dialogs, text, run.model.vocab, ROOM)
        loader = given.loader((ROOM, 1), 0)
        found[packing] = []
        for _ in range(3):
            tokens_BT, targets_BT = next(loader)
            found[packing].append(model.loss(tokens_BT, targets_BT).item())
    single = [
        model.loss(ids[None, :-1], wanted[None, 1:]).item()
        for ids, wanted in prepared_order(tune)[:3]
    ]
    assert found["alone"] == pytest.approx(single, rel=1e-5)
    assert found["shared"] != pytest.approx(single, rel=1e-5)


def prepared_order(tune: Tune) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Ids and targets of the dialogues, each by itself, in the order of the first epoch."""
    run = tune()
    assert run.dialogs is not None
    text = prepare(run.data, run.model.vocab)
    given = prepare_dialogs(run.dialogs, text, run.model.vocab, ROOM).training
    order = epoch_of(given, 0, 0, ROOM, "alone").order_D.tolist()
    pairs = [given.targets(dialogue) for dialogue in order]
    return [(torch.from_numpy(ids), torch.from_numpy(wanted)) for ids, wanted in pairs]


def curve(result: Result) -> list[tuple[float, float]]:
    return [(step.loss, step.gradient_norm) for step in result.steps]


def test_a_run_that_was_stopped_goes_on_bit_by_bit_without_the_run_it_began_from(
    tune: Tune, trained: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "start"
    shutil.copytree(trained, copy)
    run = tune(f"start={copy}")
    whole = train(run.model_copy(update={"train": run.train.model_copy(update={"output": None})}))
    stop = Stop()

    def watch(step: StepMetrics) -> None:
        if step.step == 4:
            stop.signal = signal.SIGTERM

    assert train(run, progress=watch, stop=stop).ended == "interrupted"
    shutil.rmtree(copy / "checkpoints")
    resumed = train(run, existing="resume")
    assert curve(resumed) == curve(whole)
    assert resumed.evaluations == whole.evaluations
    theirs = whole.model.state_dict()
    assert all(torch.equal(one, theirs[name]) for name, one in resumed.model.state_dict().items())


def test_the_loss_on_held_out_dialogues_falls_and_the_folder_is_served(tune: Tune) -> None:
    run = tune("train.steps=12", "train.evaluate_every=4", "optimizer.lr=0.01")
    losses = [one.loss for one in train(run).evaluations]
    assert losses[-1] < losses[0] - 0.5
    assert run.train.output is not None
    engine = load_engine(Path(run.train.output), EngineSpec())
    assert engine.vocabulary.markers


def test_what_cannot_be_begun_with_is_refused(
    tune: Tune, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tune("train.output=null")
    small = run.model.model_copy(update={"vocab": 257})
    with pytest.raises(UsageError, match=r"TW603.*`embedding.weight` 272x32 -> 257x32"):
        train(run.model_copy(update={"model": small}))
    with pytest.raises(UsageError, match=r"TW605.*257 ids leave no 10"):
        train(run.model_copy(update={"model": small, "start": None}))
    other = run.data.model_copy(update={"held_out": 0.1})
    with pytest.raises(UsageError, match="TW604"):
        train(run.model_copy(update={"data": other}))
    long = write(tmp_path / "long.jsonl", [row(1)])
    with pytest.raises(UsageError, match=r"TW606"):
        train(tune(f"dialogs.source={long}", "train.sequence=8", "train.output=null"))
    with pytest.raises(UsageError, match="TW602"):
        tune(f"start={tmp_path}")
    words = (f"start={trained}", "dialogs.source=absent", f"train.output={tmp_path / 'new'}")
    assert main(["nano", *(part for word in words for part in ("--set", word))]) == 2
    assert "TW600" in capsys.readouterr().err
