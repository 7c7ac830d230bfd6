"""The judge of single sentences: what it catches of claims that it never saw."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from reference.agentic.environment import judged
from reference.generate.request import ChatRequest, Reply, Tokens
from reference.rl.gym.environments import JudgedEnvironment, item, said, texts
from reference.rl.gym.support import (
    RELATIONS,
    auroc,
    auroc_error,
    claims,
    fit_logistic,
    in_disorder,
    measured,
    unsupported,
)


def test_the_auroc_on_held_out_claims_is_high_for_all_and_for_each_kind() -> None:
    found = measured(1200)
    print(found)
    assert found["all"]["auroc"] - 3 * found["all"]["error"] > 0.9
    assert {"added", "another subject", "denied"} < found["kinds"].keys()
    for kind, one in found["kinds"].items():
        assert one["auroc"] > 0.8, kind
    assert found["caught"] > 0.8
    assert found["refused"] < 0.3


def test_held_out_claims_share_no_name_and_no_wording_with_those_of_training() -> None:
    seen, unseen = (claims(200, unseen=one, seed=0) for one in (False, True))
    names = [
        {*re.findall(r"\b[A-Z][a-z]{3,}", " ".join(one.passage for one in some))}
        for some in (seen, unseen)
    ]
    assert names[0] & names[1] == {"There"}
    tells = texts("faithfulness")["tells"]
    told = [{tuple(tells[one][unseen]) for one in RELATIONS} for unseen in (False, True)]
    assert not told[0] & told[1]
    assert {one.kind for one in unseen} - {one.kind for one in seen} == {"added", "another subject"}


def test_labels_dealt_out_at_random_teach_nothing() -> None:
    draw = np.random.default_rng(0)
    rows, labels = draw.normal(size=(400, 4)), draw.random(400) < 0.5
    model = fit_logistic(rows.tolist(), labels[:400].astype(float).tolist())
    fresh = draw.normal(size=(400, 4))
    scores = [model.chance(row) for row in fresh.tolist()]
    assert abs(auroc(scores, (draw.random(400) < 0.5).tolist()) - 0.5) < 0.1


def test_the_regression_finds_the_weights_that_made_the_labels() -> None:
    draw = np.random.default_rng(1)
    rows = draw.normal(size=(20_000, 2))
    chance = 1 / (1 + np.exp(-(rows @ [2.0, -1.0] + 0.5)))
    labels = (draw.random(20_000) < chance).astype(float)
    assert fit_logistic(rows.tolist(), labels.tolist(), 1e-6).weights == pytest.approx(
        (2, -1, 0.5), abs=0.1
    )


def test_auroc_by_hand() -> None:
    labels = [True, True, False, False]
    assert auroc([4, 3, 2, 1], labels) == 1
    assert auroc([1, 2, 3, 4], labels) == 0
    assert auroc([4, 2, 3, 1], labels) == 0.75
    assert auroc([1, 1, 1, 1], labels) == 0.5
    with pytest.raises(ValueError, match="both"):
        auroc([1, 2], [True, True])
    # Hanley and McNeil 1982: A = 0.9, Q1 = 9/11, Q2 = 1.62/1.9, 50 rows of each.
    first, second = 0.9 / 1.1, 1.62 / 1.9
    square = (0.09 + 49 * (first - 0.81) + 49 * (second - 0.81)) / 2500
    assert auroc_error(0.9, 50, 50) == pytest.approx(math.sqrt(square))


def test_what_a_passage_says_is_supported_and_what_it_does_not_is_not() -> None:
    text = "Almira makes rope. Borvik makes glass. Almira was founded in 1810."
    good = "Almira makes rope. In 1810 Almira was founded."
    assert all(one < 0.5 for one in unsupported(text, good))
    for bad in ("Borvik was founded in 1810.", "Almira was founded in 1811.", "Quarn makes rope."):
        assert unsupported(text, bad)[0] > 0.5, bad
    assert in_disorder(text, "rope founded glass Almira in")
    assert unsupported(text, "") == []


def test_a_judge_beside_can_refuse_and_never_rescue() -> None:
    asked: list[ChatRequest] = []

    class Says:
        def __init__(self, text: str) -> None:
            self.text = text

        def complete(self, request: ChatRequest) -> Reply:
            asked.append(request)
            return Reply(self.text, (), Tokens(None, None), "stop")

        def stream(self, request: ChatRequest):  # noqa: ARG002
            yield from ()

    made = item("instructions", 2, 0)
    yes, no = (
        JudgedEnvironment(made.environment, Says(text), "Is it kind?") for text in ("yes", "no")
    )
    assert judged(yes, made.solve()).success
    assert judged(no, made.solve()).causes == ("not judge",)
    count = len(asked)
    assert not judged(yes, said("wrong")).success
    assert len(asked) == count, "what fails anyway is not asked about"
    assert "Is it kind?" in asked[0].messages[-1].content
