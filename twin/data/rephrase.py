"""The requests that rephrasing a corpus takes.

An excerpt is cut into pieces that are rewritten one after the other; each request reads the
instructions, what is rewritten so far, and its piece (Kimi K2's report, arXiv:2507.20534, figure
4). With a prefix cache only the last rewritten piece and the next piece are new: what was written
follows other tokens than it did when it was written, so it is prefilled once. Then a judge may read
both. An excerpt that is refused is made again, with the same chance: 1 / acceptance attempts.
"""

from __future__ import annotations

from twin.data.types import Asked, Job
from twin.inference import Request
from twin.spec.data import CorpusSpec, RephrasingRecipe


def rephrasing_job(recipe: RephrasingRecipe, corpus: CorpusSpec, *, prefix_cache: bool) -> Job:
    """What it takes to rephrase a corpus as often as is written. The last piece of an excerpt
    counts as a part of one."""
    kept = corpus.tokens * corpus.rephrasings / recipe.excerpt
    attempts = kept / recipe.acceptance
    pieces = recipe.excerpt / recipe.piece
    asked = [Asked("pieces", attempts * pieces, _piece(recipe, pieces, prefix_cache))]
    if recipe.check:
        both = recipe.excerpt * (1 + recipe.written)
        asked.append(Asked("check", attempts, Request(both, 0.0, float(recipe.check))))
    written = corpus.tokens * corpus.rephrasings * recipe.written
    return Job(corpus.name, "rephrasing", tuple(asked), written, attempts, kept)


def _piece(recipe: RephrasingRecipe, pieces: float, prefix_cache: bool) -> Request:
    """The mean request of an excerpt of so many pieces."""
    written = recipe.piece * recipe.written
    before = written * (pieces - 1) / 2  # of this excerpt, mean over its pieces
    held = recipe.prompt + recipe.piece + written * pieces
    if not prefix_cache:
        return Request(recipe.prompt + before + recipe.piece, 0.0, written, held=held)
    last = written * (pieces - 1) / pieces  # the first piece has none before it
    return Request(recipe.piece + last, recipe.prompt + before - last, written, held=held)
