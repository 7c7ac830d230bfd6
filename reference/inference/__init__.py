"""The inference engine: cached decoding in shared steps, behind an OpenAI-compatible server.

model and tokenizer    load.py, vocabulary.py
one step               forward.py, attention.py, cache.py
many sequences         blocks.py, scheduler.py, sequence.py, engine.py
one token              sampling.py, grammar/
messages               template.py
bodies and answers     openai/, answers.py, service.py, desk.py
without HTTP           local.py: `Engine(LocalChat(service, name))` is a Generator
the server             server.py, __main__.py
"""
