"""Evaluation: tasks are data and a scorer, results have intervals.

    tool_use(environments, generator, *, steps=16, sampling=Sampling(temperature=0, max_tokens=256),
             at_once=8, metadata=None) -> ToolUse       (reference.evaluate.tool_use)

plays environments with any generator; `.validity` (None without a call), `.valid_turns`,
`.opened` and `.success` are intervals. A run's model as such a generator, decoding freely:
`open_trained(Path("runs/x")).generator` (reference.evaluate.subjects.trained).

spec.py, task.py, tasks/   what is asked, as data
ask/                       a way of asking per file: read, choose, generate, needle, act, attack
scorers/                   who judges a text, a file each
subjects/                  what is judged: a run's model here, a server, the rules
play.py, calls.py          dialogues with tools; whether calls are valid
statistics/                intervals, pass@k, votes
journal.py, run.py         cases as they come, and going on after a kill
result.py, table.py, compare.py, heatmap.py    what is told
every.py                   a training run asks its own model
"""
