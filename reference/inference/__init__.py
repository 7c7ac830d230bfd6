"""The inference engine: cached decoding in shared steps, behind an OpenAI-compatible server.

one step               forward.py, cache.py
many sequences         scheduler.py, engine.py
one token              request.py, constraint.py, json_grammar.py
bodies and answers     openai/, service.py
without HTTP           local.py: an engine from a run's folder; `Engine(LocalChat(service, name))`
                       is a Generator
the server             server.py, __main__.py
"""
