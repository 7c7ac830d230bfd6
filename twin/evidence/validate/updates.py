"""Rows of weight updates: new weights on their way to the inference engines, played.

Updates and recoveries of checkpoint-engine are scenarios (`twin.evidence.calibrate.weight_update`):
the engines' GPUs are the trainers' own, in nodes of the row's GPU. Other rows leave out what a
scenario needs, or have engines on GPUs of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from twin.errors import TwinError
from twin.evidence.calibrate.weight_update import Measured, measured, predicted
from twin.evidence.validate.answer import Answer, blank, refused
from twin.evidence.validate.architecture import known
from twin.evidence.validate.hardware import gpu_of
from twin.evidence.validate.row import Row, Unreadable, number

SECONDS: Final = "update_seconds"
STACK: Final = "checkpoint-engine-vllm"
"""Of the catalog's updaters the one that all rows are played with."""
MEASURED_ON: Final = "H20"
"""The GPU of the nodes of the scenario that rows are changes of."""
EVENTS: Final = ("update_broadcast_s", "update_p2p_s")
"""What rows of checkpoint-engine call an update and a recovery."""
ASSUMED: Final = ("NICs and hosts as on H800 nodes", "gathering of metadata left out, as measured")


def answers(row: Row) -> tuple[Answer, ...]:
    """Seconds of an update of all engines, and of the recovery of one."""
    try:
        reason = _outside(row)
        if reason is not None:
            return (refused(row, SECONDS, reason),)
        return tuple(_answer(row, one) for one in measured([row.fields]))
    except Unreadable as why:
        return (refused(row, SECONDS, str(why)),)
    except TwinError as error:
        return (refused(row, SECONDS, error.problems[0].message),)
    except (KeyError, TypeError, ValueError):
        return (refused(row, SECONDS, "its updates cannot be read"),)


def _answer(row: Row, one: Measured) -> Answer:
    return replace(
        blank(row, SECONDS),
        id=f"{row.id}[{one.event}]",
        predicted=predicted(one),
        measured=one.seconds,
        stack=STACK,
        assumed=ASSUMED,
    )


def _outside(row: Row) -> str | None:
    """Why no scenario is what a row measured; None where one is."""
    said = row.fields.get("not_expressible")
    if said is not None:
        return str(said)
    if row.gpus is None:
        return "the row does not say on how many GPUs"
    apart = bool({"trainer_gpus", "trainer", "trainer_fsdp"} & set(row.layout))
    gpu, times = gpu_of(row), [number(row.metrics, name) for name in EVENTS]
    reasons = {
        f"the catalog has no model {row.model}": not known(row.model),
        "trainers and engines on GPUs of their own": apart,
        "no update and recovery with their buckets": None in times,
        f"updates are measured on {MEASURED_ON}, and the row ran on {gpu}": gpu != MEASURED_ON,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
