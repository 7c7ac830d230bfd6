"""A whole build: nothing lost or doubled, killed anywhere, and every token's provenance."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference.data.pipeline import build
from reference.data.shards import SIDES, read_table
from reference.data.spec import BuildSpec
from reference.data.stage import read_records
from reference.generate.request import ChatRequest, Reply
from reference.generate.rules import RuleGenerator
from reference.text.packing import damages, provenance, read_manifest
from reference.text.prepare import open_build, prepare
from reference.text.spec import DataSpec
from reference.text.template import special_tokens
from tests.reference.data.raw import bytes_of, small_build
from twin.errors import FieldError, TwinError, UsageError

POINTS = [
    ("exact:done", 1),
    (".near.partial:document", 30),
    ("quality:written", 1),
    ("rephrase:document", 7),
    ("rephrase:done", 1),
    ("shards:training-00002:half", 1),
    ("shards:training-00003:done", 1),
    ("shards:written", 1),
    ("shards:done", 1),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed build, with its raw text beside it."""
    folder = tmp_path_factory.mktemp("whole")
    build(small_build(folder))
    return folder


def killed_at(spec: BuildSpec, point: str, turn: int) -> None:
    """A process that builds and kills itself when it reaches a point for the n-th time."""
    child = os.fork()
    if not child:
        seen: Counter[str] = Counter()

        def reached(name: str) -> None:
            seen[name] += 1
            if name == point and seen[name] == turn:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            build(spec, existing="resume", reached=reached)
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, f"{point} was never reached"


def test_killed_at_every_stage_and_mid_shard_it_ends_with_the_same_bytes(
    whole: Path, tmp_path: Path
) -> None:
    """One build that is killed nine times, each time later on."""
    spec = small_build(whole, output=str(tmp_path / "build"))
    for point, turn in POINTS:
        killed_at(spec, point, turn)
    build(spec, existing="resume")
    assert bytes_of(tmp_path / "build") == bytes_of(whole / "build")


def test_a_half_line_in_the_journal_is_asked_for_again(whole: Path, tmp_path: Path) -> None:
    spec = small_build(whole, output=str(tmp_path / "build"))
    killed_at(spec, "rephrase:document", 5)
    journal = tmp_path / "build" / ".rephrase.partial" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-9])
    build(spec, existing="resume")
    assert bytes_of(tmp_path / "build") == bytes_of(whole / "build")


def test_every_stage_accounts_for_every_document(whole: Path) -> None:
    reports = read_manifest(whole / "build")["stages"]
    for name in ("ingest", "exact", "near", "quality", "rephrase"):
        lost = sum(row["documents"] for row in reports[name]["left_out"])
        assert reports[name]["in"] == reports[name]["out"] + lost
    for first, then in (("ingest", "exact"), ("exact", "near"), ("near", "quality")):
        assert reports[then]["in"] == reports[first]["out"]
    found = {row["reason"] for row in reports["ingest"]["left_out"]}
    assert found == {"not JSON", "not UTF-8", "empty"}
    (copy,) = reports["exact"]["left_out"]
    assert (copy["reason"], copy["documents"]) == ("duplicate", 1)
    assert copy["first"].endswith("knowledge.jsonl:2")
    assert reports["near"]["left_out"][0]["reason"] == "near-duplicate"


def test_tokens_of_shards_are_their_documents_and_nothing_else(whole: Path) -> None:
    """From the text of stages, through tokenizer and index, to the bytes of every shard."""
    folder = whole / "build"
    manifest, prepared = read_manifest(folder), open_build(folder, 2048)
    rows = list(read_table(folder / "encode"))
    texts = {record.id: record.text for record in _documents(folder)}
    for side, tokens in zip(SIDES, (prepared.training, prepared.held_out_tokens), strict=True):
        pieces = [np.load(folder / "shards" / row["index"]) for row in manifest[side]]
        taken: dict[int, list[Any]] = {}
        position = 0
        for _, document, offset, count in np.concatenate(pieces).tolist():
            part = tokens.ids_N[position : position + count]
            held = taken.setdefault(document, [[]])
            if offset == 0 and held[-1]:
                held.append([])
            held[-1].extend(part.tolist())
            position += count
        assert position == len(tokens)
        for document, visits in taken.items():
            for visit in visits:
                assert prepared.tokenizer.decode(visit) == texts[rows[document]["id"]]
                assert visit[-1] == prepared.tokenizer.end


def _documents(folder: Path) -> list[Any]:
    files = ("hold_out/training.jsonl", "hold_out/held_out.jsonl", "rephrase/rewrites.jsonl")
    return [record for file in files for record in read_records(folder / file)]


def test_all_shards_but_the_last_have_one_size_and_say_what_they_hold(whole: Path) -> None:
    manifest = read_manifest(whole / "build")
    for side in SIDES:
        *full, last = manifest[side]
        assert {row["tokens"] for row in full} <= {4096}
        assert 0 < last["tokens"] <= 4096
        for row in manifest[side]:
            assert sum(row["sources"].values()) == row["tokens"]


def test_held_out_documents_are_neither_trained_on_nor_rephrased(whole: Path) -> None:
    rows = list(read_table(whole / "build" / "encode"))
    held_out = {row["id"] for row in rows if row["side"] == "held_out"}
    training = {row["id"] for row in rows if row["side"] == "training"}
    assert held_out
    assert not held_out & training
    assert not held_out & {row["parent"] for row in rows}


def test_a_token_of_a_rewriting_names_its_source_document(whole: Path) -> None:
    folder = whole / "build"
    rows, begin, seen = list(read_table(folder / "encode")), 0, 0
    for shard in read_manifest(folder)["training"]:
        for first, document, offset, count in np.load(folder / "shards" / shard["index"]).tolist():
            if rows[document]["origin"] == "lecture" and not seen:
                place = provenance(folder, "training", begin + first + count - 1)
                assert place.offset == offset + count - 1
                assert (place.source, place.origin) == ("towns", "lecture")
                assert place.parent == rows[document]["parent"] != ""
                seen += 1
        begin += shard["tokens"]
    assert seen
    with pytest.raises(IndexError):
        provenance(folder, "training", begin)


@pytest.mark.parametrize("file", ["training-00001.bin", "held_out-00000.bin"])
def test_a_flipped_byte_is_named_by_check_and_before_training(
    whole: Path, tmp_path: Path, file: str
) -> None:
    folder = whole / "build"
    path = folder / "shards" / file
    content = path.read_bytes()
    try:
        path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
        (problem,) = damages(folder, read_manifest(folder))
        assert problem.code == "TW474"
        assert str(path) in problem.message
        name, number = file.removesuffix(".bin").split("-")
        assert f"{name.replace('_', '-')} shard {int(number)}" in problem.message
        spec = DataSpec(source=(str(folder),), cache=str(tmp_path))
        with pytest.raises(UsageError) as raised:
            prepare(spec, 2048)
        assert list(raised.value.problems) == [problem]
    finally:
        path.write_bytes(content)


def test_the_trainer_reads_a_build_with_its_tokenizer_and_held_out_text(whole: Path) -> None:
    manifest = read_manifest(whole / "build")
    found = prepare(DataSpec(source=(str(whole / "build"),)), 2048)
    assert found.tokenizer.vocabulary == 400 - len(special_tokens())  # theirs follow the end
    assert len(found.training) == sum(row["tokens"] for row in manifest["training"])
    assert found.held_out_bytes == manifest["sides"]["held_out"]["bytes"]
    assert found.tokenizer.token_bytes[found.held_out_tokens.ids_N].sum() == found.held_out_bytes
    with pytest.raises(UsageError, match="TW225"):
        prepare(DataSpec(source=(str(whole / "build"),)), 300)
    with pytest.raises(UsageError, match="TW476"):
        prepare(DataSpec(source=(str(whole / "build"), "stdlib")), 2048)


def test_another_configuration_does_not_resume_and_a_foreign_folder_is_left_alone(
    whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="another configuration"):
        build(small_build(whole, seed=1), existing="resume")
    with pytest.raises(UsageError, match="holds a build already"):
        build(small_build(whole))
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no build"):
        build(small_build(whole, output=str(tmp_path)), existing="fresh")
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_a_third_rephrasing_of_a_corpus_is_refused_with_the_reason(whole: Path) -> None:
    three = [{"source": "towns", "style": style} for style in ("plain", "lecture", "recap")]
    with pytest.raises((TwinError, FieldError, ValueError), match="at most twice"):
        small_build(whole, rephrase=three)
    assert small_build(whole, rephrase=three, rephrase_limit=3)


def test_rules_refuse_to_translate_what_is_none_of_their_phrases(
    whole: Path, tmp_path: Path
) -> None:
    spec = small_build(
        whole,
        output=str(tmp_path / "build"),
        rephrase=[{"source": "sums", "style": "to-english"}],
    )
    with pytest.raises(UsageError, match="none of their fixed phrases"):
        build(spec)


class Broken(RuleGenerator):
    """A generator that answers with a fact that nobody told."""

    def complete(self, request: ChatRequest) -> Reply:
        said = request.messages[1].content.split("<passage>\n")[1].split("\n</passage>")[0]
        return replace(super().complete(request), text=said.replace("founded in 1", "founded in 2"))


def test_rewritings_with_faults_are_left_out_and_counted(whole: Path, tmp_path: Path) -> None:
    spec = small_build(
        whole,
        output=str(tmp_path / "build"),
        rephrase=[{"source": "towns", "style": "plain"}],
    )
    report = build(spec, generator=Broken())["stages"]["rephrase"]
    (row,) = report["left_out"]
    assert (report["out"], row["documents"]) == (0, report["in"])
    assert row["reason"].startswith("plain: number")


def test_provenance_of_a_rewriting_has_style_generator_pieces_and_fidelity(whole: Path) -> None:
    path = whole / "build" / "rephrase" / "rewrites.jsonl"
    sources = {record.id: record for record in _documents(whole / "build")}
    records = [one for one in read_records(path) if one.origin == "lecture"]
    assert len(records) > 10
    for record in records:
        source = sources[record.parent].text
        pieces = record.made["pieces"]
        assert len(pieces) > 1
        assert [pieces[0][0], pieces[-1][1]] == [0, len(source)]
        assert all(one[1] == other[0] for one, other in itertools.pairwise(pieces))
        assert pieces[-1][3] == len(record.text)
        assert record.made["generator"] == "rules"
        assert record.made["fidelity"]["faults"] == []


def test_foreign_sums_are_translated_and_the_translation_names_its_source(whole: Path) -> None:
    training = read_records(whole / "build" / "hold_out" / "training.jsonl")
    sources = {record.id: record for record in training if record.source == "abroad"}
    rewrites = read_records(whole / "build" / "rephrase" / "rewrites.jsonl")
    records = [one for one in rewrites if one.origin == "to-english"]
    assert len(records) == len(sources) > 8
    for record in records:
        assert record.text.count("boxes") == 3
        assert sources[record.parent].text != record.text


def test_the_manifest_is_versioned_json(whole: Path) -> None:
    manifest = json.loads((whole / "build" / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"]) == ("training-shards", 1)
    assert manifest["config"] == json.loads((whole / "build" / "build.json").read_text())["config"]
