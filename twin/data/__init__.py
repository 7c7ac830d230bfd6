"""Data that is generated before training: which requests it takes, and what they cost on the
cluster by the inference model."""

from __future__ import annotations

from twin.data.generate import generation, jobs_of, rephrasing_job, trajectories_job
from twin.data.types import BOUNDS, Asked, Generation, Job, JobRun, Part

__all__ = [
    "BOUNDS",
    "Asked",
    "Generation",
    "Job",
    "JobRun",
    "Part",
    "generation",
    "jobs_of",
    "rephrasing_job",
    "trajectories_job",
]
