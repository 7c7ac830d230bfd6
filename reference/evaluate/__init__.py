"""Evaluation: tasks are data and a scorer, results have intervals.

    tool_use(environments, generator, *, steps=16, sampling=Sampling(temperature=0, max_tokens=256),
             at_once=8, metadata=None) -> ToolUse       (reference.evaluate.tool_use)

plays environments with any generator; `.validity` (None without a call), `.valid_turns`,
`.opened` and `.success` are intervals. A run's model as such a generator, decoding freely:
`open_trained(Path("runs/x")).generator` (reference.evaluate.trained).

task.py, tasks/     configuration; tasks as data
protocols/          ways to ask: likelihood, generate, needle, act, attack
scorers.py          scorers of texts
subject.py          the model that is evaluated; trained.py: that of a run
tool_use.py         dialogues with tools; whether calls are valid
statistics.py       intervals, pass@k, votes
run.py, journal.py  the evaluation, cases on disk, resuming after a kill
report.py           document, tables, pictures, comparison
"""
