"""OpenAI's HTTP interface (platform.openai.com/docs/api-reference).

body.py   the fields of /v1/completions and /v1/chat/completions, and errors
api.py    answers as documents, over one engine
"""
