"""Files in any store: what is known of them, and their bytes as text that parsers can take."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

import fsspec
import numpy as np

from privatekube_kfp.data.places import is_local
from privatekube_kfp.data.tables.refusals import in_a_sentence, unreadable


class File:
    """A file in some store, and its name for people: without passwords and signatures."""

    def __init__(self, uri: str) -> None:
        self.shown = without_secrets(uri)
        with in_a_sentence(self.shown):
            try:
                self._store, self.path = fsspec.core.url_to_fs(uri)
            except ValueError as error:
                raise unreadable(self.shown, f"its address makes no sense: {error}") from error
            self._info: dict[str, Any] = self._store.info(self.path)
        if self._info.get("type") == "directory":
            raise unreadable(self.shown, "it is a folder; name the files in it")
        self.is_local = is_local(self._store)
        self.size = int(self._info.get("size") or 0)

    def known(self) -> tuple[str, int, list[str]]:
        """Without reading it: its place, its size, and when it changed or which version it is.

        The place is whole, with any secrets in it: not to be shown.
        """
        if self.is_local:
            version = [f"mtime={self._info.get('mtime')}"]
        else:
            told = {
                name.lower().replace("_", "").replace("-", ""): str(value)
                for name, value in self._info.items()
            }
            version = [f"{name}={told[name]}" for name in _VERSIONS if told.get(name)]
        return self._store.unstrip_protocol(self.path), self.size, version

    def open(self) -> BinaryIO:
        opened: BinaryIO = self._store.open(self.path, "rb")
        return opened

    @contextmanager
    def text(self, *, counts_quotes: bool = False) -> Iterator[Text]:
        """What is in it, unpacked if it is gzipped, whatever its name says."""
        with self.open() as opened:
            is_zipped = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            source = gzip.GzipFile(fileobj=opened) if is_zipped else opened
            yield Text(source, opened, self.shown, counts_quotes)


_VERSIONS = ("etag", "mtime", "lastmodified", "updated", "generation", "versionid", "created")
"""What stores call it."""


def without_secrets(uri: str) -> str:
    parts = urlsplit(uri)
    if not parts.scheme or "://" not in uri:
        return uri
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


_OTHER_KINDS = {
    b"PAR1": "it is Parquet",
    b"PK\x03\x04": "it is a ZIP archive; unpack it",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd; only gzip is read",
    b"BZh": "it is compressed with bzip2; only gzip is read",
    b"\xfd7zX": "it is compressed with xz; only gzip is read",
    b"\xff\xfe": "it is UTF-16; convert it to UTF-8",
    b"\xfe\xff": "it is UTF-16; convert it to UTF-8",
}
NOT_TEXT = "\ufdd0\ufdef"
"""Stands for bytes that are no text. No text has these: Unicode says so."""
NOT_TEXT_BYTES = NOT_TEXT.encode()


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return NOT_TEXT, error.end


codecs.register_error("privatekube-mark", _mark)


class Text(io.RawIOBase):
    """Bytes that are UTF-8 for sure: whatever is not, and NUL, comes out as a mark.

    The parsers would give up at such bytes, or carry them on; with marks only their rows are lost.
    """

    def __init__(
        self,
        source: BinaryIO | gzip.GzipFile,
        stored: BinaryIO,
        shown: str,
        counts_quotes: bool,
    ) -> None:
        super().__init__()
        self.marked = False
        self.quotes = 0
        self._counts_quotes = counts_quotes
        self._source = source
        self._stored = stored
        self._decoder = codecs.getincrementaldecoder("utf-8")("privatekube-mark")
        head = source.read(4)
        for magic, what in _OTHER_KINDS.items():
            if head.startswith(magic):
                raise unreadable(shown, what)
        self._left = memoryview(self._cleaned(head.removeprefix(codecs.BOM_UTF8)))

    @property
    def bytes_read(self) -> int:
        return self._stored.tell()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._left:
            chunk = self._source.read(max(len(target), io.DEFAULT_BUFFER_SIZE))
            self._left = memoryview(self._cleaned(chunk))
            if not chunk and not self._left:
                return 0
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _cleaned(self, chunk: bytes) -> bytes:
        if self._counts_quotes:
            self.quotes += int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord('"')))
        if not chunk.isascii() or self._decoder.getstate()[0]:
            chunk = self._decoder.decode(chunk, final=not chunk).encode()
        if b"\0" in chunk:
            chunk = chunk.replace(b"\0", NOT_TEXT_BYTES)
        self.marked = self.marked or (not chunk.isascii() and NOT_TEXT_BYTES in chunk)
        return chunk
