"""What a build of pre-training data reads, keeps, rephrases, mixes and writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, Strict, model_validator

from reference.files import yaml_table
from reference.text.near import NearSpec
from reference.text.spec import HeldOut, Paths, TokenizerSpec
from twin.errors import FieldError
from twin.spec.base import Count, Flag, Part, Spec, Whole

Domain = Literal["web", "code", "maths", "knowledge"]
"""The four parts of Kimi K2's pre-training text (arXiv:2507.20534, section 2.2)."""
Kind = Literal["rewrite", "translate"]
LIMIT: Final = 2
"""Rephrasings per corpus at most (Kimi K2, arXiv:2507.20534, section 2.2)."""
Weight = Annotated[float, Strict(), Field(ge=0, le=1e6)]
Epochs = Annotated[float, Strict(), Field(gt=0, le=1000)]


@dataclass(frozen=True, slots=True)
class Style:
    """How a piece is to be rewritten.

    WRAP (Maini et al. 2024, arXiv:2401.16380, section 3.1) rewrites web text in four styles (easy,
    medium, hard, question and answer); Kimi K2 (arXiv:2507.20534, section 2.2) asks for diverse
    styles and perspectives, and turns mathematics into learning notes after SwallowMath (Fujii et
    al. 2025, arXiv:2505.02881), and into English.
    """

    name: str
    instruction: str
    kind: Kind = "rewrite"


def _styles() -> dict[str, Style]:
    plain: dict[str, Any] = yaml_table(Path(__file__).with_name("styles.yaml"))
    kinds: tuple[Kind, ...] = ("rewrite", "translate")
    return {
        name: Style(name, f"{text} {plain['keep']}", kind)
        for kind in kinds
        for name, text in plain[kind].items()
    }


STYLES: Final = _styles()
"""Every style by its name."""


class SourceSpec(Spec):
    """One corpus of raw files."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]
    """What reports and provenance call it."""
    domain: Domain
    """Which part of the mixture it belongs to."""
    path: Paths
    """Files and folders: .jsonl, .parquet, .txt, .md, .rst, .py."""
    field: str = "text"
    """Key or column of the text."""
    rules: tuple[str, ...] | None = None
    """Quality rules by name; null: those of its domain."""


class IngestSpec(Spec):
    """What is no document."""

    max_bytes: Count = 1_000_000
    """Bytes above which a document is counted as huge, left out."""
    control: Part = 0.01
    """Share of control characters above which it is not text; OURS."""


class RephraseSpec(Spec):
    """One rephrasing of one source, whole."""

    source: str
    """Name of the source."""
    style: str = Field(description=f"one of {', '.join(sorted(STYLES))}")
    piece: Annotated[Count, Field(ge=16, le=4096)] = 256
    """Words of a piece, each rewritten with the end of the rewriting so far as context (Kimi K2's
    figure 4: about 256 tokens)."""


class MixtureSpec(Spec):
    """How the domains share the tokens."""

    weights: dict[Domain, Weight] = Field(
        default={"web": 1.0, "code": 1.0, "maths": 1.0, "knowledge": 1.0}
    )
    """Shares of the tokens, in any scale; a domain without text has none."""
    epochs: dict[Domain, Epochs] | None = None
    """How often each domain is read, 1 where it names none, instead of all that stands below and
    `weights`."""
    tokens: Count | None = None
    """Tokens in all; null: as many as there are."""
    max_epochs: Epochs = 4.0
    """How often a domain may be read: up to 4 times cost little (Muennighoff et al. 2023,
    arXiv:2305.16264); where weights ask for more there are fewer tokens in all."""


class BuildSpec(Spec):
    """A build: its folder holds every stage."""

    output: str
    """Folder of the build."""
    sources: tuple[SourceSpec, ...] = Field(min_length=1)
    """Raw corpora, in order."""
    ingest: IngestSpec = Field(default_factory=IngestSpec)
    """What is no document."""
    near: NearSpec = Field(default_factory=NearSpec)
    """Near-duplicates."""
    held_out: HeldOut = 0.05
    """Share of documents never trained on nor rephrased, by a hash."""
    rephrase: tuple[RephraseSpec, ...] = ()
    """Rephrasings, in order."""
    generator: str = "rules"
    """Who rephrases: `rules`, the address of an OpenAI-compatible server, the folder of a training
    run, or `MODULE:FUNCTION` of an engine."""
    rephrase_limit: Annotated[Count, Field(le=100)] = LIMIT
    """Rephrasings per source; more than Kimi K2's 2 is for studies of the limit."""
    originals: Flag = True
    """Train on the documents that were rephrased, too."""
    tokenizer: TokenizerSpec
    """How text becomes tokens; `vocab` is needed."""
    mixture: MixtureSpec = Field(default_factory=MixtureSpec)
    """Shares of domains."""
    shard: Annotated[Count, Field(ge=64)] = 1_000_000
    """Tokens of every shard but the last."""
    seed: Whole = 0
    """Of the order of documents, and of rephrasing."""

    @model_validator(mode="after")
    def _consistent(self) -> BuildSpec:
        names = [source.name for source in self.sources]
        for name, times in Counter(names).items():
            if times > 1:
                raise FieldError("TW017", f"two sources are called `{name}`", "rename one")
        for one in self.rephrase:
            if one.source not in names:
                message = f"`rephrase` names `{one.source}`, which is no source"
                raise FieldError("TW016", message, f"one of {', '.join(names)}")
            if one.style not in STYLES:
                message = f"`{one.style}` is no style of rephrasing"
                raise FieldError("TW016", message, f"one of {', '.join(sorted(STYLES))}")
        for name, times in Counter(one.source for one in self.rephrase).items():
            if times > self.rephrase_limit:
                raise FieldError("TW017", *_too_often(name, times, self.rephrase_limit))
        if self.tokenizer.kind == "bpe" and self.tokenizer.vocab is None:
            raise FieldError("TW011", "a build needs `tokenizer.vocab`", "such as 2048, of nano")
        return self


def _too_often(name: str, times: int, limit: int) -> tuple[str, str]:
    wrong = (
        f"`{name}` is rephrased {times} times, at most {limit} are allowed: Kimi K2 rephrases a "
        "corpus at most twice, since more repeats the generator's mistakes and narrows the text"
    )
    return wrong, "leave some out; a study of the limit sets `rephrase_limit`"
