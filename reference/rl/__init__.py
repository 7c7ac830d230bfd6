"""Reinforcement learning on verifiable rewards as Kimi K2 does it: `python -m reference.rl CONFIG`.

run.py           a run's parts and iterations; measuring how hard tasks are
iteration.py     prompts, rollout, switch, updates, new weights, awake; where it can stop
session.py       the state of a run between two such places, its log, its checkpoints; the sleep
spec.py          the configuration; presets in reference/presets/rl

rollout.py       the engine writes, environments answer, responses pause and go on; temperature
records.py       responses as tokens: ids, log-probabilities, versions of weights; messages; repeats

tasks.py         tasks by name, from sources: the gym's, toys.py, one's own
environments.py  the work of environments, how slow they are, and the processes that do it
prompts.py       which tasks come next, and how hard they are
rewards.py       rewards of responses

batches.py       responses and PTX as weighted batches
objective.py     objectives, their policy-gradient weights, and a step of the trainer

gym/             families of verifiable tasks
critique/        a critic of responses that no program can verify
pareto.py        what several rewards trade
"""
