"""What stops a pipeline before a task of it runs."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline that cannot be read, compiled or run as asked: a reason and a sentence.

    `malformed` says that the words of the caller are at fault, not what they name.
    """

    def __init__(self, reason: str, message: str, *, malformed: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.malformed = malformed
