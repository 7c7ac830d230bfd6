"""The stages of a build, in order, and the manifest that closes it.

Raw files to documents: whatever is none is counted, with its place.

One document is in memory at a time, and a batch of rows of a Parquet file; a line longer than six
times `ingest.max_bytes` (JSON may spell a byte with six) is not held. Files come in the order of
the sources, and within a folder by path, so the file system decides nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, tee
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from reference.data import quality, stage
from reference.data.rephrase import REWRITES, rephrase
from reference.data.shards import SIDES, Visits, encode_side, ends_of, mix, read_table, write_shards
from reference.data.spec import BuildSpec, IngestSpec, SourceSpec
from reference.data.stage import BuildStage, Dropped, Hook, Record, StageWork
from reference.generate.request import Generator
from reference.text.documents import READERS, Content, Defect, decoded, records
from reference.text.near import NearSpec, near_copies
from reference.text.packing import FORMAT, MANIFEST, VERSION, file_digest, id_type
from reference.text.split import fraction
from reference.text.template import special_tokens
from reference.text.tokenizer import ByteTokenizer, read_tokenizer, train_bpe
from twin.errors import Problem, UsageError

Found = Iterator[Record | Dropped]
_PLAIN: Final = frozenset("\t\n\r\f")


def read_source(source: SourceSpec, limits: IngestSpec) -> Found:
    """Every document of a source, and every loss. Raises `UsageError`: TW220 a path that is not
    there, TW228 Parquet without pyarrow."""
    for path in source.path:
        root = Path(path).expanduser()
        if root.is_dir():
            for file in _below(root):
                place = f"{root.name}/{file.relative_to(root).as_posix()}"
                yield from _file(file, place, source, limits)
        elif root.is_file():
            yield from _file(root, root.name, source, limits)
        else:
            wrong = f"there is no file or folder `{path}`"
            raise UsageError([Problem("TW220", f"sources.{source.name}.path", wrong)])


def _below(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, below, names in os.walk(root):
        below.sort()
        found += [Path(folder, name) for name in names]
    return sorted(found)


def _file(path: Path, place: str, source: SourceSpec, limits: IngestSpec) -> Found:
    if any(part.startswith(".") for part in Path(place).parts):
        yield Dropped(source.name, "hidden file", place)
        return
    if path.suffix.lower() not in READERS:
        yield Dropped(source.name, "unknown suffix", place)
        return
    try:
        for number, content in records(path, source.field, limits.max_bytes, "sources.path"):
            where = f"{place}:{number}" if number else place
            yield _judged(source, where, content, limits)
    except OSError:
        yield Dropped(source.name, "unreadable file", place)


def _judged(
    source: SourceSpec, place: str, content: Content, limits: IngestSpec
) -> Record | Dropped:
    if isinstance(content, Defect):
        return Dropped(source.name, content.reason, place)
    text = decoded(content)
    if text is None:
        return Dropped(source.name, "not UTF-8", place)
    if len(text.encode()) > limits.max_bytes:
        return Dropped(source.name, "huge", place)
    if not text.strip():
        return Dropped(source.name, "empty", place)
    if not _is_text(text, limits.control):
        return Dropped(source.name, "not text", place)
    return Record(f"{source.name}/{place}", source.name, source.domain, text)


def _is_text(text: str, most: float) -> bool:
    """Whether it has no zero byte, and few control characters."""
    if "\0" in text:
        return False
    control = sum((one < " " and one not in _PLAIN) or one in "\x7f\ufffd" for one in text)
    return control <= most * len(text)


CONFIG: Final = "build.json"
_LOCK: Final = ".lock"
_TOKENIZER: Final = "tokenizer.json"
Existing = Literal["refuse", "resume", "fresh"]


def _silent(_: str) -> None:
    """What a build does that nobody watches."""


def build(
    spec: BuildSpec,
    *,
    existing: Existing = "refuse",
    generator: Generator | None = None,
    reached: Hook = _silent,
    tell: Hook = _silent,
) -> dict[str, Any]:
    """The manifest of a build, made or finished. Without a generator the one that the
    configuration names rephrases.

    Raises `UsageError`: TW220 no such path, TW228 a missing package, TW470 a folder that holds
    another build, or anything else, TW471 an unknown rule, TW472 no text, TW475 rules that cannot
    translate a text, and what the generator raises.
    """
    folder = Path(spec.output).expanduser()
    rules = {source.name: quality.rules_of(source) for source in spec.sources}
    with _opened(folder, spec, existing):
        stages = (
            BuildStage("ingest", _ingest),
            BuildStage("exact", _passing("ingest", lambda _, found: first_of_each(found))),
            BuildStage("near", _passing("exact", _near)),
            BuildStage("quality", _passing("near", lambda _, found: quality.good(found, rules))),
            BuildStage("hold_out", _hold_out),
            BuildStage("rephrase", lambda work: rephrase(work, generator), resumes=True),
            BuildStage("vocabulary", _vocabulary),
            BuildStage("encode", _encode),
            BuildStage("shards", _shards, resumes=True),
        )
        reports = stage.run_stages(stages, spec, folder, reached, tell)
        if not (folder / MANIFEST).exists():
            stage.write_json(folder / MANIFEST, _manifest(spec, folder, reports))
            reached("manifest")
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def config_hash(spec: BuildSpec) -> str:
    """Of everything that decides the bytes: all but the folder."""
    plain = spec.model_dump(mode="json", exclude={"output"})
    text = json.dumps(plain, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@contextmanager
def _opened(folder: Path, spec: BuildSpec, existing: Existing) -> Iterator[None]:
    """The folder, held against other processes, for this configuration."""
    ours = (folder / CONFIG).is_file() or (folder / _LOCK).is_file()
    if folder.exists() and not ours and (not folder.is_dir() or any(folder.iterdir())):
        raise _refused(folder, "exists and holds no build", "name another with `--set output=...`")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _refused(folder, "is being built by another process", "wait for it") from None
        for path in folder.iterdir() if existing == "fresh" else ():
            if path.name != _LOCK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        path = folder / CONFIG
        there = json.loads(path.read_text(encoding="utf-8"))["config"] if path.is_file() else None
        if there is not None and existing == "refuse":
            hint = "`--resume` goes on with it, `--fresh` deletes it"
            raise _refused(folder, "holds a build already", hint)
        if there is not None and there != config_hash(spec):
            hint = "resume with the settings of the build, or `--fresh`"
            raise _refused(folder, "holds a build of another configuration", hint)
        if there is None:
            plain = spec.model_dump(mode="json", exclude={"output"})
            stage.write_json(path, {"config": config_hash(spec), "spec": plain})
        yield


def _refused(folder: Path, why: str, hint: str) -> UsageError:
    return UsageError([Problem("TW470", "output", f"`{folder}` {why}", hint)])


def normalised(text: str) -> str:
    """The text by which copies are found: Unicode composition (NFC), case (casefold) and white
    space (runs of it to one space, none around) make no difference."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def first_of_each(records: Iterable[Record]) -> Iterator[Record | Dropped]:
    """Each record whose text is new, and a drop for each that is not. First is what comes first in
    the order of ingestion: sources as configured, paths sorted, records by number. Memory: 16 bytes
    of hash per kept document, about 150 with the set's and the place's."""
    seen: dict[bytes, str] = {}
    for record in records:
        digest = hashlib.blake2b(normalised(record.text).encode(), digest_size=16).digest()
        if digest in seen:
            place = f"{record.id} of {seen[digest]}"
            yield Dropped(record.source, "duplicate", place)
        else:
            seen[digest] = record.id
            yield record


def _ingest(work: StageWork) -> dict[str, Any]:
    limits = work.spec.ingest
    found = chain.from_iterable(read_source(one, limits) for one in work.spec.sources)
    return stage.write_kept(work.own / stage.FILE, found, work.reached)


def _near(work: StageWork, found: Iterator[Record]) -> Iterable[Record | Dropped]:
    return found if work.spec.near.off else without_near_copies(found, work.spec.near)


def without_near_copies(records: Iterable[Record], spec: NearSpec) -> Iterator[Record | Dropped]:
    """Each record that no kept record resembles, and what is dropped."""
    records, read_ahead = tee(records)
    copies = near_copies(((record.id, record.text) for record in read_ahead), spec)
    for record, copy in zip(records, copies, strict=True):
        if copy is None:
            yield record
        else:
            yield Dropped(record.source, "near-duplicate", f"{record.id} {copy}")


def _passing(
    before: str, sift: Callable[[StageWork, Iterator[Record]], Iterable[Record | Dropped]]
) -> Callable[[StageWork], dict[str, Any]]:
    """A stage that reads the documents of the one before, and keeps some."""

    def run(work: StageWork) -> dict[str, Any]:
        found = sift(work, stage.read_records(work.of(before, stage.FILE)))
        return stage.write_kept(work.own / stage.FILE, found, work.reached)

    return run


def _hold_out(work: StageWork) -> dict[str, Any]:
    """Writes the documents that are never trained on nor rephrased apart from the others: by a hash
    of the id, so that more documents move none. Near copies across the sides are gone before."""
    counts = [0, 0]
    paths = [work.own / f"{side}.jsonl" for side in SIDES]
    with (
        paths[0].open("w", encoding="utf-8", newline="\n") as training,
        paths[1].open("w", encoding="utf-8", newline="\n") as held_out,
    ):
        for record in stage.read_records(work.of("quality", stage.FILE)):
            apart = fraction(record.id) < work.spec.held_out
            (held_out if apart else training).write(stage.line_of(record))
            counts[apart] += 1
    if not counts[0]:
        wrong = "no document is left to train on"
        hint = "the reports `done.json` of each stage say what was left out, and why"
        raise UsageError([Problem("TW472", "sources", wrong, hint)])
    return dict(zip(SIDES, counts, strict=True))


def _training(work: StageWork) -> Iterator[Record]:
    """What training reads, each document once."""
    rephrased = {one.source for one in work.spec.rephrase}
    for record in stage.read_records(work.of("hold_out", "training.jsonl")):
        if work.spec.originals or record.source not in rephrased:
            yield record
    yield from stage.read_records(work.of("rephrase", REWRITES))


def _vocabulary(work: StageWork) -> dict[str, Any]:
    """The tokenizer. Of the ids that the configuration gives, those behind the end of a document
    are left to the special tokens of the chat template, which no text encodes to."""
    spec = work.spec.tokenizer
    kept = len(special_tokens())
    if spec.kind == "bytes":
        tokenizer = ByteTokenizer()
    else:
        if (spec.vocab or 0) < 257 + kept:
            wrong = f"{spec.vocab} ids cannot hold 256 bytes, an end and {kept} special tokens"
            raise UsageError([Problem("TW225", "tokenizer.vocab", wrong, f"at least {257 + kept}")])
        texts = (record.text for record in _training(work))
        tokenizer = train_bpe(texts, (spec.vocab or 0) - kept)
    (work.own / _TOKENIZER).write_text(tokenizer.text(), encoding="utf-8")
    return {"kind": spec.kind, "ids": tokenizer.vocabulary, "reserved": kept}


def _encode(work: StageWork) -> dict[str, Any]:
    text = work.of("vocabulary", _TOKENIZER).read_text(encoding="utf-8")
    tokenizer = read_tokenizer(work.spec.tokenizer.kind, text)
    held_out = sorted(
        stage.read_records(work.of("hold_out", "held_out.jsonl")),
        key=lambda record: fraction(record.id),
    )
    report: dict[str, Any] = {}
    with (work.own / stage.FILE).open("w", encoding="utf-8", newline="\n") as table:
        for side, records in zip(SIDES, (_training(work), held_out), strict=True):
            documents, tokens = encode_side(records, tokenizer, side, work.own, table)
            report[side] = {"documents": documents, "tokens": tokens}
    return {"vocabulary": tokenizer.vocabulary, **report}


def _shards(work: StageWork) -> dict[str, Any]:
    rows = list(read_table(work.folder / "encode"))
    names = [f"{row['source']}:{row['origin']}" for row in rows]
    vocabulary = json.loads(work.of("encode", "done.json").read_text())["vocabulary"]
    training = [(at, row) for at, row in enumerate(rows) if row["side"] == SIDES[0]]
    lengths = {
        domain: (
            np.array([at for at, row in training if row["domain"] == domain]),
            np.array([row["tokens"] for _, row in training if row["domain"] == domain]),
        )
        for domain in sorted({row["domain"] for _, row in training})
    }
    mixture = mix(lengths, work.spec.mixture, work.spec.seed)
    report: dict[str, Any] = {"mixture": mixture.report()}
    for side in SIDES:
        own = [at for at, row in enumerate(rows) if row["side"] == side]
        path = work.of("encode", f"{side}.bin")
        kind = id_type(vocabulary)
        ids = np.memmap(path, kind, "r") if path.stat().st_size else np.zeros(0, kind)
        lengths_D = np.array([rows[at]["tokens"] for at in own], dtype=np.int64)
        order = mixture.order_V if side == SIDES[0] else np.array(own, dtype=np.int64)
        visits = Visits(order, ends_of(lengths_D), own[0] if own else 0, ids, names)
        report[side] = write_shards(visits, work.spec.shard, side, work.own, work.reached)
    return report


def _manifest(spec: BuildSpec, folder: Path, reports: dict[str, Any]) -> dict[str, Any]:
    files = {"tokenizer": f"vocabulary/{_TOKENIZER}", "documents": f"encode/{stage.FILE}"}
    found = {
        key: {"file": path, "sha256": file_digest(folder / path)} for key, path in files.items()
    }
    sides = {side: {"documents": 0, "bytes": 0, "rewrites": 0} for side in SIDES}
    for row in read_table(folder / "encode"):
        counts = sides[row["side"]]
        counts["documents"] += 1
        counts["bytes"] += row["bytes"]
        counts["rewrites"] += row["origin"] != stage.ORIGINAL
    shards = reports["shards"]
    return {
        "format": FORMAT,
        "version": VERSION,
        "config": config_hash(spec),
        "vocabulary": reports["encode"]["vocabulary"],
        "tokenizer": {**found["tokenizer"], "kind": spec.tokenizer.kind},
        "documents": found["documents"],
        "sides": sides,
        "mixture": shards["mixture"],
        "training": shards["training"],
        "held_out": shards["held_out"],
        "stages": {name: report for name, report in reports.items() if name != "shards"},
    }
