"""What published iterations of reinforcement learning leave out: lengths, batches and habits of a
framework, from its public recipes, or assumed once for all rows of a source.

A recipe is a YAML in scenarios/published/recipes. Nothing in it was chosen by what a row measured.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml import YAML

from twin.evidence.validate.row import Row
from twin.loading.files import shipped_folder

FOLDER: Final = "recipes"

Tree = dict[str, Any]


class Recipe(BaseModel):
    """A framework's recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    software: str = Field(description="frameworks, of trainer and engines")
    sources: tuple[str, ...] = Field(description="how titles of its sources begin")
    profiles: dict[str, str] = Field(description="the calibration of each GPU")
    assumed: tuple[str, ...] = Field(description="what no recipe says, in words")
    prompt: int = Field(description="tokens of a prompt")
    sigma: float = Field(description="of the logarithm of the tokens that are written")
    mean: int | None = Field(default=None, description="tokens written, where a row says none")
    batch: int = Field(description="sequences of an engine at a time")
    unused: float = Field(description="share of a device that colocated engines leave alone")
    scores: int = Field(description="passes forward before training")
    requests: int | None = Field(default=None, description="of an iteration, as `mean`")
    train_batch: int | None = Field(default=None, description="sequences of an optimizer step")
    longest: int | None = Field(default=None, description="tokens written at most, as `mean`")
    generation: int | None = Field(default=None, description="tensor ranks of an engine")
    micro_tokens: int | None = Field(
        default=None, description="tokens of a micro-batch; none: those of the longest sequence"
    )
    scenario: Tree = Field(default_factory=dict, description="habits, as sections of a scenario")
    models: dict[str, Tree] = Field(default_factory=dict, description="what is else of a model")
    words: dict[str, Tree] = Field(default_factory=dict, description="what is else by a word")
    layers: dict[str, tuple[int, int, int, int]] = Field(
        default_factory=dict,
        description="by layers/stages: layers of the first stage, how many follow, layers of each "
        "of these, layers of the last",
    )

    def of(self, row: Row) -> Recipe:
        """The recipe of a row's own model and words."""
        mine = [self.models.get(row.model, {})]
        mine += [more for word, more in self.words.items() if word in row.words]
        found = self.model_dump()
        for more in mine:
            found = over(found, more)
        return Recipe.model_validate(found)

    def split(self, layers: int, stages: int) -> list[int] | None:
        """Layers of each stage; None where the recipe has no split for so many."""
        found = self.layers.get(f"{layers}/{stages}")
        if found is None:
            return None
        first, count, each, last = found
        return [first, *[each] * count, last]


def over(tree: Tree, more: Tree) -> Tree:
    """A tree with another on top of it, section by section."""
    found = dict(tree)
    for key, value in more.items():
        own = found.get(key)
        both = isinstance(own, dict) and isinstance(value, dict)
        found[key] = over(cast("Tree", own), cast("Tree", value)) if both else value
    return found


@cache
def recipes() -> tuple[Recipe, ...]:
    """All that ship."""
    folder = shipped_folder() / "published" / FOLDER
    reader = YAML(typ="safe")
    # ruamel leaves the type of its streams open.
    read: list[Any] = [reader.load(file) for file in sorted(folder.glob("*.yaml"))]  # pyright: ignore[reportUnknownMemberType]
    return tuple(Recipe.model_validate(one) for one in read)


def recipe_of(row: Row) -> Recipe | None:
    """The recipe of a row; None where its source has none."""
    found = (one for one in recipes() if any(row.source.startswith(name) for name in one.sources))
    mine = next(found, None)
    return mine.of(row) if mine else None
