"""Reports: the answers to a run, what they say in words, and how two of them differ."""

from twin.reports.breakdown import CAUSE_WORDS, CAUSES
from twin.reports.compare import Comparison, Delta, compare
from twin.reports.head import RunInfo
from twin.reports.report import MemoryReport, Report
from twin.reports.summary import memory_report, report, resolved
from twin.reports.verdict import difference, fitting, verdict
from twin.spec.kpis import KPIS, Kpi

__all__ = [
    "CAUSES",
    "CAUSE_WORDS",
    "KPIS",
    "Comparison",
    "Delta",
    "Kpi",
    "MemoryReport",
    "Report",
    "RunInfo",
    "compare",
    "difference",
    "fitting",
    "memory_report",
    "report",
    "resolved",
    "verdict",
]
