"""What a schema may not hold."""

from __future__ import annotations


class SchemaError(ValueError):
    """A schema that cannot be enforced; `path` is where, `keyword` what."""

    def __init__(self, path: str, keyword: str, message: str) -> None:
        path = path.strip(".")
        super().__init__(f"{path or 'the schema'}: {message}")
        self.path, self.keyword = path, keyword
