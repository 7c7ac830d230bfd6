"""Weights from the trainer's ranks to the inference ranks, whatever the layouts of both: the
middleware of Kimi K2 (arXiv:2507.20534, section 3.3 and appendix G; MoonshotAI/checkpoint-engine),
small. `twin` simulates it under the same names.

the full set        units.py: what travels, and who holds what of it
to whom             layout.py, needs.py
in which buckets    buckets.py
from where          host_copies.py: a share in host memory; checkpoint.py: read from disk, once
in which order      pipeline.py: two or three stages
over what           transport.py: direct messages or broadcasts
ranks               ranks.py: senders and receivers; peers.py: their processes
the controller      controller.py
in one process      local.py
the command         job.py, record.py, report.py, __main__.py
"""
