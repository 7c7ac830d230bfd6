"""OpenAI's HTTP interface (platform.openai.com/docs/api-reference).

body.py       fields of a body, errors, /v1/completions
chat.py       /v1/chat/completions
choices.py    choices as documents
api.py        both over one engine
"""
