"""Mistakes are named, and nothing is left behind; the command tells them with its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reference.convert.__main__ import main
from reference.convert.folder import MODEL, load
from reference.convert.hugging_face import from_hf, to_hf
from reference.convert.shards import INDEX, Shards
from tests.reference.convert.folders import SMALL, put, released, weights_of
from tests.reference.model.peers import GROUPED, changed
from twin.errors import ScenarioError, UsageError

Harm = Callable[[dict[str, Tensor]], object]
UP = "model.layers.1.mlp.experts.3.up_proj.weight"
WRONG: dict[str, tuple[Harm, str]] = {
    "missing": (lambda w: w.pop(UP), f"TW253 1 tensor is missing: `{UP}`"),
    "many missing": (
        lambda w: [w.pop(name) for name in list(w) if ".experts." in name],
        "TW253 24 tensors are missing: ",
    ),
    "unexpected": (
        lambda w: w.update({"model.layers.7.x": torch.ones(1)}),
        "TW254 1 tensor is not of this model: `model.layers.7.x`",
    ),
    "mis-shaped": (
        lambda w: w.update({UP: torch.ones(32, 12)}),
        f"TW255 1 tensor is of another shape: `{UP} 32x12 instead of 12x32`",
    ),
}


@pytest.mark.parametrize(("harm", "said"), WRONG.values(), ids=WRONG)
def test_tensors_that_do_not_fit_are_named(harm: Harm, said: str, tmp_path: Path) -> None:
    weights = released(SMALL)
    harm(weights)
    put(tmp_path / "hf", SMALL, weights)
    with pytest.raises(UsageError) as caught:
        from_hf(tmp_path / "hf", tmp_path / "ours")
    assert said in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_rotary_frequencies_tied_heads_and_prediction_layers_may_be_there(tmp_path: Path) -> None:
    weights = released(SMALL)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    weights["model.layers.2.eh_proj.weight"] = torch.ones(32, 64)
    put(tmp_path / "hf", SMALL, weights, num_nextn_predict_layers=1)
    done = from_hf(tmp_path / "hf", tmp_path / "ours")
    assert done.notes == ("1 tensors of prediction layers are left out",)
    to_hf(tmp_path / "ours", tmp_path / "again")
    assert json.loads((tmp_path / "again/config.json").read_text())["num_nextn_predict_layers"] == 0
    tied = changed(GROUPED, tied_embeddings=True)
    put(tmp_path / "tied", tied, released(tied) | {"lm_head.weight": torch.ones(61, 32)})
    from_hf(tmp_path / "tied", tmp_path / "tied-ours")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A released folder and ours of the same model."""
    put(tmp_path / "hf", SMALL, released(SMALL))
    from_hf(tmp_path / "hf", tmp_path / "ours")
    return tmp_path / "hf", tmp_path / "ours"


def test_folders_that_are_none_are_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    released_one, own = pair
    made = tmp_path / "made"
    for source, way, said in (
        (tmp_path / "absent", from_hf, "TW250 .* holds no `config.json`"),
        (own, from_hf, "TW250 .* holds no `config.json`"),
        (released_one, to_hf, f"TW250 .* holds no `{MODEL}`"),
    ):
        with pytest.raises(UsageError, match=said):
            way(source, made)
    next(own.glob("*.safetensors")).unlink()
    with pytest.raises(UsageError, match=r"TW250 .* holds no safetensors files"):
        load(own)
    assert not made.exists()


def test_a_mistake_in_our_model_is_told_at_its_line(pair: tuple[Path, Path]) -> None:
    path = pair[1] / MODEL
    path.write_text(path.read_text().replace("hidden: 32", "hiden: 32"))
    with pytest.raises(ScenarioError, match=r"model\.yaml:3:1: .*unknown key `hiden`"):
        load(pair[1])


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_file_that_was_cut_is_refused(kept: int, pair: tuple[Path, Path], tmp_path: Path) -> None:
    path = pair[0] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UsageError, match=r"TW258 `model\.safetensors` cannot be read"):
        from_hf(pair[0], tmp_path / "made")


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "it is no index of weights"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "which is no file beside it"),
        ('{"weight_map": {"a": "model-2.safetensors"}}', "1 of 1 files of weights are missing"),
    ],
)
def test_an_index_that_is_wrong_is_refused(index: str, said: str, pair: tuple[Path, Path]) -> None:
    (pair[0] / INDEX).write_text(index)
    with pytest.raises(UsageError, match=said):
        Shards(pair[0])


def test_what_exists_is_not_touched(pair: tuple[Path, Path]) -> None:
    before = weights_of(pair[1])
    with pytest.raises(UsageError, match=r"TW256 .* exists already"):
        from_hf(pair[0], pair[1])
    assert weights_of(pair[1]).keys() == before.keys()


def test_a_conversion_that_stops_leaves_nothing(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, calls = Shards.read, []

    def stopping(self: Shards, name: str) -> Tensor:
        calls.append(name)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return read(self, name)

    monkeypatch.setattr(Shards, "read", stopping)
    with pytest.raises(KeyboardInterrupt):
        from_hf(pair[0], tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "ours"]


def test_the_command_says_what_it_did_or_what_is_wrong(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "made"
    assert main(["to-hf", str(pair[1]), str(made), "--dtype", "fp32"]) == 0
    assert f"{made}: hf, {len(released(SMALL))} tensors" in capsys.readouterr().out
    assert main(["to-hf", str(pair[1]), str(made)]) == 2
    assert "TW256" in capsys.readouterr().err
    assert main(["to-onnx", "a", "b"]) == 2


def test_tokenizers_travel_with_the_weights(pair: tuple[Path, Path], tmp_path: Path) -> None:
    (pair[0] / "tokenizer.json").write_text("{}")
    (pair[0] / "modeling_kimi.py").write_text("")
    from_hf(pair[0], tmp_path / "mine")
    to_hf(tmp_path / "mine", tmp_path / "made")
    assert (tmp_path / "made" / "tokenizer.json").read_text() == "{}"
    assert not (tmp_path / "made" / "modeling_kimi.py").exists()
