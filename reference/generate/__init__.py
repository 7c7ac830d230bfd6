"""Text from a model, or from rules on machines without a model.

`request.Generator` is the interface; `server` speaks to any OpenAI-compatible server, `choose` to
an engine of this process, `rules` answers by rules.
"""
