"""Weights from the trainer's ranks to the inference ranks, whatever the layouts of both: the
middleware of Kimi K2 (arXiv:2507.20534, section 3.3 and appendix G; MoonshotAI/checkpoint-engine),
small. `twin.kinds.weight_update` simulates it under the same names.

what travels            units.py: the full set, and who holds what of it
to whom                 layout.py, needs.py
in which buckets        buckets.py
from where              host.py: a share in host memory; read.py: from a checkpoint, once
in which order          stages/: two, three
over what               wires/: direct, collective
ranks                   sender.py, receiver.py, target.py: where received weights go
who lost its weights    fetch.py: reads others' host copies, alone
processes               peers.py, order.py, controller.py
one process             local.py
the command             job.py, record.py, report.py, __main__.py
"""
