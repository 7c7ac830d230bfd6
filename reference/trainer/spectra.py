"""Spectral norms and SVD entropies of all ranks' weights, by role."""

from __future__ import annotations

from dataclasses import asdict

from reference.checkpoint.ranks import on_all
from reference.optim.diagnostics import Spectrum, spectra
from reference.trainer.trainee import Trainee


def spectra_of(trainee: Trainee) -> dict[str, dict[str, float]]:
    """Largest spectral norm, and mean SVD entropy over the matrices that were looked at, of the
    weights of each role, in all layers; the same on every rank. Replicas look at the same
    matrices, and so change no mean."""
    named = [one for model in trainee.models for one in model.named_parameters()]
    handle = trainee.world.groups["world"].handle
    merged: dict[str, list[Spectrum]] = {}
    for found in on_all(handle, lambda: spectra(named)):
        for role, spectrum in found.items():
            merged.setdefault(role, []).append(spectrum)
    return {role: asdict(_merged(some)) for role, some in merged.items()}


def _merged(some: list[Spectrum]) -> Spectrum:
    matrices = sum(one.matrices for one in some)
    entropy = sum(one.entropy * one.matrices for one in some) / matrices
    return Spectrum(max(one.spectral_norm for one in some), entropy, matrices)
