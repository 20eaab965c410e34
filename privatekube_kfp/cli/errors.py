"""How a command ends when it does not succeed.

Exit code 2 says that the command line cannot be understood: an unknown option or choice, a value
that is not of its kind, options that contradict each other. Exit code 1 says that it was
understood and refused, or that something failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import click

from privatekube_kfp.core.errors import Invalid, PrivateKubeError, Reason

DONE = 0
REFUSED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141

_MALFORMED = (
    Reason.INVALID_BUDGET,
    Reason.INVALID_REQUEST,
    Reason.INVALID_STREAM,
    Reason.INVALID_PLAN,
)


class Failure(Exception):
    """The end of a command: a reason for programs, a sentence for people, an exit code.

    `details` go beside the error in JSON; `on_output` is False where writing there is what failed;
    `sentence` is what people read where that is more than the message.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        code: int = REFUSED,
        hint: str | None = None,
        help_text: str | None = None,
        details: Mapping[str, object] | None = None,
        on_output: bool = True,
        sentence: str | None = None,
    ) -> None:
        super().__init__(message)
        self.sentence = sentence or message
        self.reason = reason
        self.message = message
        self.code = code
        self.hint = hint
        self.help_text = help_text
        self.details = dict(details or {})
        self.on_output = on_output


class ReaderGone(Exception):
    """Whoever read our output has stopped reading: the pipe is broken."""


class MalformedValue(click.BadParameter):
    """A value that the library cannot read, with the library's reason."""

    def __init__(self, error: Invalid, **context) -> None:
        super().__init__(error.message, **context)
        self.reason = error.reason


class MalformedCommand(click.UsageError):
    """Options that are fine one by one and make no sense together, with the library's reason."""

    def __init__(self, error: Invalid) -> None:
        super().__init__(error.message, click.get_current_context(silent=True))
        self.reason = error.reason


@contextmanager
def reading_the_command_line() -> Iterator[None]:
    """What the library finds malformed in here is the command line's fault."""
    try:
        yield
    except Invalid as error:
        if error.reason not in _MALFORMED:
            raise
        raise MalformedCommand(error) from error


@contextmanager
def needing(extra: str, *modules: str) -> Iterator[None]:
    """What is imported in here comes with an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in modules:
            raise
        raise Failure(
            "MissingExtra",
            f"{missing} is not installed; run pip install 'privatekube-kfp[{extra}]'",
        ) from None


def needing_pyarrow() -> AbstractContextManager[None]:
    return needing("pipelines", "pyarrow", "fsspec")


def failure_of(error: BaseException) -> Failure | None:
    """What an exception means for whoever ran the command; None where it is a bug of ours."""
    match error:
        case Failure():
            return error
        case click.UsageError():
            return _usage(error)
        case click.exceptions.Abort():
            return Failure("Interrupted", "interrupted", code=INTERRUPTED)
        case PrivateKubeError():
            sentence = f"{error.message} ({error.reason})"
            return Failure(error.reason, error.message, sentence=sentence)
        case click.ClickException():
            return Failure("Failed", error.format_message())
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return Failure("Failed", f"{where}{error.strerror or error}")
    return None


def _usage(error: click.UsageError) -> Failure:
    reason = str(getattr(error, "reason", "Usage"))
    message, context = error.format_message(), error.ctx
    if context and isinstance(context.command, click.Group) and message == "Missing command.":
        return Failure(reason, message, code=USAGE, help_text=context.get_help())
    hint = f"Try '{context.command_path} --help'." if context else None
    return Failure(reason, message, code=USAGE, hint=hint)
