"""Text to ids and back: nothing is lost, every byte is counted, training repeats."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from reference.text.tokenizer import BpeTokenizer, ByteTokenizer, Tokenizer, read_tokenizer
from reference.text.tokenizer import train_bpe as train

TEXTS = [
    "def area(width, height):\n    return width * height  # in metres\n" * 3,
    "The library documents the area, width by height.\r\n\tN\u00fcrnberg \u6771\u4eac",
]
BPE = train(TEXTS, 320)
BOTH = pytest.mark.parametrize("tokenizer", [BPE, ByteTokenizer()], ids=["bpe", "bytes"])


def ids_of(tokenizer: Tokenizer, text: str) -> np.ndarray:
    (ids,) = tokenizer.encode([text])
    return ids


@BOTH
@given(text=st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_comes_back_and_its_bytes_are_counted(tokenizer: Tokenizer, text: str) -> None:
    ids = ids_of(tokenizer, text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes[ids].sum() == len(text.encode())
    assert not np.any(ids == tokenizer.end)


@BOTH
def test_all_256_bytes_are_tokens_and_the_last_id_is_none(tokenizer: Tokenizer) -> None:
    assert {bytes([value]) for value in range(256)} <= set(tokenizer.pieces)
    assert len(set(tokenizer.pieces)) == len(tokenizer.pieces)
    assert tokenizer.end == tokenizer.vocabulary - 1 == len(tokenizer.pieces)
    assert tokenizer.token_bytes[tokenizer.end] == 0
    assert tokenizer.decode([tokenizer.end]) == ""


@pytest.mark.parametrize("mark", ["<|endoftext|>", "</s>", "[EOS]", "<|im_end|>"])
def test_no_text_spells_the_end_of_a_document(mark: str) -> None:
    ids = ids_of(BPE, mark)
    assert BPE.end not in ids
    assert BPE.decode(ids) == mark


def test_merges_shorten_what_they_were_trained_on() -> None:
    text = TEXTS[0]
    assert len(ids_of(BPE, text)) < len(text) / 3
    assert 257 < BPE.vocabulary <= 320


def test_a_text_without_repetition_gives_fewer_ids_than_asked() -> None:
    assert train(["abc"], 4096).vocabulary == 257


@BOTH
def test_what_was_written_reads_back(tokenizer: Tokenizer) -> None:
    kind = "bpe" if isinstance(tokenizer, BpeTokenizer) else "bytes"
    again = read_tokenizer(kind, tokenizer.text())
    assert again.pieces == tokenizer.pieces
    assert np.array_equal(ids_of(again, TEXTS[1]), ids_of(tokenizer, TEXTS[1]))


CODE = """
import hashlib, random
from reference.text.tokenizer import train_bpe
chance = random.Random(3)
words = ["".join(chance.choices("abcde", k=chance.randint(1, 6))) for _ in range(3000)]
print(hashlib.sha256(train_bpe([" ".join(words)] * 4, 700).text().encode()).hexdigest())
"""


def test_training_gives_the_same_merges_in_every_process_and_on_every_number_of_threads() -> None:
    found = set()
    for threads in ("1", "2"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads}
        done = subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1
    assert found != {hashlib.sha256(b"").hexdigest()}


def test_the_alphabet_is_the_librarys() -> None:
    decoder = tokenizers.decoders.ByteLevel()
    known = {piece: token for token, piece in enumerate(BPE.pieces)}
    backend = tokenizers.Tokenizer.from_str(BPE.text())
    for word, token in backend.get_vocab().items():
        text = decoder.decode([word])
        if "\ufffd" not in text:
            assert known[text.encode()] == token
