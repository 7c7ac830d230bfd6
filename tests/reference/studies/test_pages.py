"""What studies say of outcomes, made up so that the answer is known."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reference.studies import clip_variants, figure, logits, optimizers, sparsity, study
from reference.studies.runs import RunOutcome, nano
from reference.studies.study import Page, parse
from tests.house.pages import unsourced
from tests.reference.studies.runs_of import outcome
from twin.errors import UsageError

SEEDS = (0, 1, 2)


def found_of_optimizers() -> optimizers.OptimizerRuns:
    """AdamW ends at 3.0 after 1000 tokens; MuonClip is there after 800, 500 and 640."""
    ends = {0: (3.5, 3.0, 2.9), 1: (3.0, 2.9, 2.8), 2: (3.2, 2.8, 2.7)}
    adamw = {"layers.0.attention.q_up.weight": (0.5, 0.9)}
    muon = {"layers.0.attention.q_up.weight": (0.8, 0.8)}
    full: dict[tuple[optimizers.Kind, int], RunOutcome] = {}
    for seed, (_, _, end) in ends.items():
        full["adamw", seed] = outcome(3.0, entropies=adamw)
        full["muon", seed] = full["muonclip", seed] = outcome(end, entropies=muon)
    shorter = {(0.5, seed): outcome(end[0], steps=5) for seed, end in ends.items()}
    shorter |= {(0.8, seed): outcome(end[1], steps=8) for seed, end in ends.items()}
    tried: dict[optimizers.Kind, dict[float, RunOutcome]] = {
        kind: {0.01: full[kind, 0], 0.02: outcome(6.0)} for kind in optimizers.KINDS
    }
    return optimizers.OptimizerRuns(tried, full, shorter)


def found_of_logits() -> dict[tuple[logits.Kind, int], RunOutcome]:
    """Muon grows tenfold per half; MuonClip is held at the threshold from step 15 on."""
    rising = [10 ** (step / 10) for step in range(1, 31)]
    held = [min(100.0, logit) for logit in rising]
    clips = [int(logit >= 100) for logit in held]
    found: dict[tuple[logits.Kind, int], RunOutcome] = {}
    for seed in SEEDS:
        found["muon", seed] = outcome(3 + seed / 10, max_logits=rising, steps=30)
        found["muonclip", seed] = outcome(
            3.01 + seed / 10, max_logits=held, clipped_heads=clips, steps=30
        )
    return found


def page_of(page: Page) -> str:
    """Its text, in one line."""
    return " ".join(page.text("here").split())


def pages() -> list[Page]:
    """One of every study."""
    scale = nano(quick=False, steps=30)
    variants: dict[tuple[clip_variants.Variant, int], RunOutcome] = {
        (variant, seed): found_of_logits()["muon" if variant == "off" else "muonclip", seed]
        for variant in clip_variants.VARIANTS
        for seed in SEEDS
    }
    experts = {(count, seed): outcome(4 - count / 64) for count in (8, 16) for seed in SEEDS}
    return [
        optimizers.page(found_of_optimizers(), scale),
        logits.page(found_of_logits(), scale),
        clip_variants.page(variants, scale),
        sparsity.page(experts, scale),
    ]


def test_tokens_are_read_off_between_complete_runs() -> None:
    found = found_of_optimizers()
    assert [found.ratio(seed) for seed in SEEDS] == [
        pytest.approx(0.8),
        pytest.approx(0.5),
        pytest.approx((0.5 * 0.8) ** 0.5),
    ]


def test_a_loss_that_is_not_reached_is_said_to_be_so() -> None:
    found = found_of_optimizers()
    beaten = {
        **found.full,
        ("adamw", 0): outcome(2.0, entropies=dict(found.full["adamw", 0].entropies)),
    }
    worse = optimizers.OptimizerRuns(found.tried, beaten, found.shorter)
    assert worse.ratio(0) is None
    said = page_of(optimizers.page(worse, nano(quick=False, steps=30)))
    assert "not reached, 0.50, 0.63; 0.50 is an upper bound" in said
    assert "is not lower than AdamW's" in said


def test_svd_entropies_are_compared_matrix_by_matrix() -> None:
    page = optimizers.page(found_of_optimizers(), nano(quick=False, steps=30))
    assert "`50.0 %` of 6 matrices" in page_of(page)


def test_growth_is_measured_between_the_middle_and_the_end() -> None:
    """Tenths of 30 steps: 14 to 16 and 28 to 30, 1.4 decades apart."""
    growth = logits.growth(found_of_logits()["muon", 0])
    assert growth.passed == 21
    assert growth.end / growth.half == pytest.approx(10**1.4)


def test_steps_with_a_clip_count_from_the_first_one() -> None:
    assert logits.growth(found_of_logits()["muonclip", 0]).clipping == 1
    assert logits.growth(found_of_logits()["muon", 0]).clipping == 0


def test_a_loss_above_the_noise_is_called_so() -> None:
    found, scale = found_of_logits(), nano(quick=False, steps=30)
    assert "not above one standard deviation" in page_of(logits.page(found, scale))
    for seed in SEEDS:
        found["muonclip", seed] = outcome(4.0)
    assert ", above one standard deviation" in page_of(logits.page(found, scale))


def test_flop_saved_are_those_of_the_tokens_saved() -> None:
    """Half of the tokens, each of 1.01 times the FLOP."""
    found = {
        (8, 0): outcome(3.0, held_out=[(5, 4.0), (10, 3.0)]),
        (16, 0): outcome(2.5, held_out=[(5, 3.0), (10, 2.5)], flop_per_token=6.06e6),
    }
    assert sparsity.saving(found, 8, 16, 0) == pytest.approx(2 / 1.01)
    assert sparsity.saving(found, 16, 8, 0) is None


@pytest.mark.parametrize("of", pages(), ids=lambda one: one.name)
def test_a_report_is_a_page_of_the_documentation(of: Page) -> None:
    page = of.text("a machine", ["a.png"] * len(of.figures))
    assert f"`python -m reference.studies.{of.name}`" in page
    assert "](a.png)" in page
    assert unsourced(page) == []
    tables = [line for line in page.splitlines() if line.startswith("|")]
    assert tables
    assert not re.search(r"\b(nan|inf|None)\b", page)


@pytest.mark.parametrize("of", pages(), ids=lambda one: one.name)
def test_a_report_of_a_machine_without_plotly_has_its_tables(
    of: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "missing", lambda: "plotly")
    path, lacking = study.save(of, tmp_path)
    assert lacking == "plotly"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert path.name == f"{study.today()}-{of.name.replace('_', '-')}.md"
    assert "![" not in path.read_text()


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "missing", lambda: "plotly")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="TW281"):
        study.save(pages()[0], tmp_path / "file" / "folder")


@pytest.mark.parametrize("jobs", ["0", "-1", "5000"])
def test_a_number_of_runs_at_once_that_cannot_be_meant_is_refused(jobs: str) -> None:
    with pytest.raises(UsageError, match="TW282"):
        parse("A study.", ["--jobs", jobs])
