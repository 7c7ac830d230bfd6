"""The whole way from a specification to tokens, and the folder that remembers it."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

from reference.text.loader import IGNORED
from reference.text.prepare import prepare
from reference.text.spec import DataSpec
from twin.errors import UsageError


@pytest.fixture
def spec(tmp_path: Path) -> DataSpec:
    """Forty documents of random words, one of them bad."""
    chance = random.Random(1)
    folder = tmp_path / "texts"
    folder.mkdir()
    words = ["".join(chance.choices("abcdef\u00e9", k=chance.randint(1, 7))) for _ in range(50)]
    for number in range(40):
        text = " ".join(chance.choices(words, k=200))
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    (folder / "bad.txt").write_bytes(b"\xff")
    cache = str(tmp_path / "cache")
    return DataSpec(source=(str(folder),), held_out=0.2, cache=cache)


def set_tokenizer(spec: DataSpec, **fields: object) -> DataSpec:
    return DataSpec.model_validate({**spec.model_dump(), "tokenizer": fields})


def refused(spec: DataSpec, vocabulary: int) -> tuple[str, str]:
    with pytest.raises(UsageError) as raised:
        prepare(spec, vocabulary)
    (problem,) = raised.value.problems
    return problem.code, problem.message


@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_all_text_is_there_on_one_side(spec: DataSpec, kind: str) -> None:
    found = prepare(set_tokenizer(spec, kind=kind), 400)
    texts = {path.read_bytes() for path in Path(spec.source[0]).glob("[0-9]*.txt")}
    sides = [
        {found.tokenizer.decode(ids).encode() for ids in side}
        for side in (found.training, found.held_out_tokens)
    ]
    assert sides[0] | sides[1] == texts
    assert not sides[0] & sides[1]
    assert [sum(map(len, side)) for side in sides] == [
        found.facts.training_bytes,
        found.facts.held_out_bytes,
    ]
    assert found.facts.undecodable == 1


def test_the_tokenizer_knows_training_text_alone(spec: DataSpec) -> None:
    first = prepare(spec, 400)
    held_out = {first.tokenizer.decode(ids) for ids in first.held_out_tokens}
    for path in Path(spec.source[0]).glob("[0-9]*.txt"):
        if path.read_text(encoding="utf-8") in held_out:
            path.write_text(path.name * 300, encoding="utf-8")
    second = prepare(spec, 400)
    assert second.tokenizer.text() == first.tokenizer.text()
    assert second.held_out_bytes != first.held_out_bytes


def test_tokens_are_memory_mapped_and_take_two_bytes(spec: DataSpec) -> None:
    found = prepare(spec, 400)
    assert isinstance(found.training.ids_N, np.memmap)
    assert found.training.ids_N.dtype == np.uint16


def test_a_loss_becomes_bits_per_byte_exactly(spec: DataSpec) -> None:
    """A model that knows nothing needs log2(V) bits for each token, whatever the windows are."""
    found = prepare(spec, 400)
    size = found.tokenizer.vocabulary
    bits = len(found.held_out_tokens) * log(size) / log(2)
    assert found.bits_per_byte(log(size)) == pytest.approx(bits / found.held_out_bytes)
    targets = torch.cat([targets.flatten() for _, targets in found.held_out(17, 3)])
    assert found.bytes_of(targets) == found.held_out_bytes
    assert int((targets != IGNORED).sum()) == len(found.held_out_tokens)


def test_the_second_time_nothing_is_made(spec: DataSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare(spec, 400)
    monkeypatch.setattr("reference.text.prepare.train_bpe", None)
    second = prepare(spec, 400)
    assert second.facts == first.facts
    assert second.training.digest == first.training.digest
    assert np.array_equal(second.training.ids_N, first.training.ids_N)


def test_another_text_name_vocabulary_or_split_is_another_entry(spec: DataSpec) -> None:
    def digest(spec: DataSpec, vocabulary: int = 400) -> str:
        return prepare(spec, vocabulary).training.digest

    found = [digest(spec), digest(spec, 300), digest(set_tokenizer(spec, kind="bytes"))]
    found.append(digest(spec.model_copy(update={"held_out": 0.3})))
    assert digest(spec.model_copy(update={"seed": 5})) == found[0]  # the order is the loader's
    one = Path(spec.source[0], "0.txt")
    one.rename(one.with_name("renamed.txt"))
    found.append(digest(spec))
    one.with_name("renamed.txt").write_text("other")
    found.append(digest(spec))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("file", ["training.npy", "held_out.npy", "facts.json", "tokenizer.json"])
def test_a_damaged_entry_is_made_again(spec: DataSpec, file: str) -> None:
    first = prepare(spec, 400)
    ids_N = np.array(first.training.ids_N)
    (entry,) = Path(spec.cache).iterdir()
    content = (entry / file).read_bytes()
    (entry / file).write_bytes(content[: len(content) // 2])
    assert np.array_equal(prepare(spec, 400).training.ids_N, ids_N)
    assert (entry / file).read_bytes() == content


def test_an_interrupted_preparation_leaves_nothing_that_is_found(
    spec: DataSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            prepare(spec, 400)
    assert list(Path(spec.cache).iterdir()) == []
    assert prepare(spec, 400).training.ids_N.size


def test_several_at_once_give_one_entry(spec: DataSpec) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: prepare(spec, 400), range(4)))
    assert len(list(Path(spec.cache).iterdir())) == 1
    assert len({one.training.ids_N.tobytes() for one in found}) == 1


def test_a_vocabulary_that_the_model_lacks_is_refused(spec: DataSpec) -> None:
    code, told = refused(set_tokenizer(spec, vocab=4096), 2048)
    assert code == "TW225"
    assert "4,096 token ids are more than the model's 2,048" in told
    assert refused(set_tokenizer(spec, kind="bytes"), 256)[0] == "TW225"
    assert prepare(set_tokenizer(spec, vocab=300), 2048).tokenizer.vocabulary == 300


def test_a_cache_that_cannot_be_written_is_told(spec: DataSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, told = refused(spec.model_copy(update={"cache": str(tmp_path / "file")}), 400)
    assert code == "TW226"
    assert "cannot write" in told


def test_without_held_out_text_all_is_trained_on(spec: DataSpec) -> None:
    found = prepare(spec.model_copy(update={"held_out": 0.0}), 400)
    assert found.facts.training_documents == 40
    assert (found.held_out_bytes, list(found.held_out(16))) == (0, [])
    assert found.bytes_per_token == found.facts.training_bytes / len(found.training)


@pytest.mark.benchmark
def test_the_standard_library_is_prepared_in_30_s_of_cpu_and_found_in_3(tmp_path: Path) -> None:
    spec = DataSpec(cache=str(tmp_path))
    start = time.process_time()
    found = prepare(spec, 2048)
    made = time.process_time() - start
    start = time.process_time()
    prepare(spec, 2048)
    again = time.process_time() - start
    print(f"{found.facts}: {made:.1f} s, then {again:.2f} s")
    assert made < 30
    assert again < 3
