"""Ways to ask a model the cases of a task, by the task's `ask`."""
