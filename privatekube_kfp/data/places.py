"""Places at fsspec URIs: what is the same for all of them."""

from __future__ import annotations

from typing import Any


def is_local(files: Any) -> bool:
    """Whether a file system is this machine's own, where files can be renamed and locked."""
    protocol = files.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else tuple(protocol))


def in_one_line(error: BaseException) -> str:
    """What a file system says."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(said).splitlines()[0]
