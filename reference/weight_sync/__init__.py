"""Weights from the trainer's ranks to the inference ranks, whatever the layouts of both: the
middleware of Kimi K2 (arXiv:2507.20534, section 3.3 and appendix G; MoonshotAI/checkpoint-engine),
small. `twin` simulates it under the same names.

what travels, to whom   layout.py, needs.py; in which buckets: layout.py
from where              sources.py: a share in host memory, or read from disk, once
how it is sent          pipeline.py: two or three stages, direct messages or broadcasts
ranks                   ranks.py: senders and receivers; both in one process
the controller          controller.py: the processes of the ranks, and what they are asked
the command             job.py, record.py, report.py, __main__.py
"""
