"""Reinforcement learning on verifiable rewards as Kimi K2 does it: `python -m reference.rl CONFIG`.

run.py          what a run is made of
iteration.py    prompts, rollout, switch, updates, new weights, awake; where it can stop
session.py      the state of a run between two such places
spec.py         the configuration; presets in reference/presets/rl

rollout.py      the engine writes, environments answer, responses pause and go on
records.py      responses as tokens: ids, log-probabilities, versions of weights, masks
turns.py        tokens to messages, and what others say to tokens
repeats.py      responses that go round in circles

tasks.py        tasks by name, from sources: the gym's, toys, one's own
jobs.py         what an environment does after a message
workers.py      environments in processes of their own; latency.py: how slow they are
difficulty.py   how hard tasks are; prompts.py: which come next
rewards.py, temperature.py, beside.py (PTX)

rows.py         responses as weighted batches
learn.py        a step: log-probabilities, slopes of the objective, the trainer's own step
objective/      what is descended

colocated.py    one engine sleeps while the other works
checkpoints.py  all of it to disk and back, to the bit; log.py: what is told
"""
