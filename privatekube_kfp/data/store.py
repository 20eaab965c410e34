"""The private place: where the data of a stream's blocks are, and all that ingest remembers.

A folder at any fsspec URI. Everything in it is as private as the data:

    ingest.json       what was ingested, the true counts, the counter's noise
    users/            who has appeared, a piece for each ingest
    blocks/           a Parquet file for each block: what pipelines read
    staging/          an ingest under way; what a crash leaves goes with the next one

A file is replaced at once or not at all: by renaming it on a file system, by one upload elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa

from privatekube_kfp.core.errors import PrivateKubeError, Reason
from privatekube_kfp.data.places import is_local, is_of_a_place, why_it_fails

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none; there it is as with object stores
    fcntl = None  # type: ignore[assignment]

_STALE_SECONDS = 120.0
"""After so long without a sign of life, whoever held an object store is taken to be dead."""
_SIGN_SECONDS = 15.0


class Store:
    """A folder at a URI, by the names of files in it."""

    def __init__(self, uri: str) -> None:
        if not uri:
            raise PrivateKubeError(Reason.INVALID_REQUEST, "no place was given for the data")
        try:
            with _in_words(uri):
                self._files, root = fsspec.core.url_to_fs(uri)
        except ValueError as error:  # no such protocol
            raise PrivateKubeError(Reason.INVALID_REQUEST, f"{uri}: {error}") from error
        self.is_local = is_local(self._files)
        self._root = os.path.abspath(root) if self.is_local else root.rstrip("/")
        self.uri = self.uri_of("").rstrip("/")
        self._signed_at = 0.0
        self._holder = uuid.uuid4().hex

    def uri_of(self, name: str) -> str:
        return str(self._files.unstrip_protocol(self._path(name)))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    # Reading

    def read(self, name: str) -> bytes | None:
        """The contents; None if there is no such file."""
        try:
            with self._talking(name):
                return bytes(self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def read_json(self, name: str) -> dict[str, Any] | None:
        text = self.read(name)
        if text is None:
            return None
        try:
            read = json.loads(text)
            if isinstance(read, dict):
                return read
        except ValueError:
            pass
        raise self.damaged(name, "is damaged")

    def damaged(self, name: str, how: str) -> PrivateKubeError:
        return PrivateKubeError(
            Reason.DATA_UNREADABLE,
            f"{self.uri_of(name)} {how}: restore it from a copy. Without it nobody knows what was"
            " ingested, and who was counted",
        )

    def exists(self, name: str) -> bool:
        with self._talking(name):
            return bool(self._files.exists(self._path(name)))

    def names(self, folder: str) -> set[str]:
        """The files of a folder."""
        with self._talking(folder), suppress(FileNotFoundError):
            path = self._path(folder)
            self._files.invalidate_cache(path)
            return {str(found).rsplit("/", 1)[-1] for found in self._files.ls(path, detail=False)}
        return set()

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        """A file that is there, as far as ingest remembers."""
        try:
            with self._talking(name), self._files.open(self._path(name), "rb") as opened:
                yield opened
        except FileNotFoundError as error:
            raise self.damaged(name, "is missing") from error
        except pa.ArrowException as error:
            raise self.damaged(name, "is damaged") from error

    # Writing

    def write_json(self, name: str, value: object) -> None:
        with self.writing(name) as path:
            path.write_text(json.dumps(value, indent=1) + "\n")

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Where to write what becomes a file at once, if nothing is raised."""
        self.show_life()
        with self._writing(name):
            target = Path(self._path(name))
            if self.is_local:
                partial = Path(self._path(f"staging/{target.name}.partial"))
                for folder in (target.parent, partial.parent):
                    folder.mkdir(parents=True, exist_ok=True)
            else:
                handle, made = tempfile.mkstemp(prefix="privatekube-")
                os.close(handle)
                partial = Path(made)
            try:
                yield partial
                if self.is_local:
                    _sync(partial)
                    os.replace(partial, target)
                else:
                    self._files.put_file(str(partial), self._path(name))
            finally:
                partial.unlink(missing_ok=True)

    def settle(self, *folders: str) -> None:
        """See to it that what was written into these folders is there after a power failure."""
        if self.is_local:
            for folder in folders:
                if os.path.isdir(self._path(folder)):
                    _sync(Path(self._path(folder)))

    def remove(self, name: str) -> None:
        """A file or a whole folder; nothing if it is not there."""
        with self._talking(name), suppress(FileNotFoundError):
            if self.is_local and os.path.isdir(self._path(name)):
                shutil.rmtree(self._path(name))
            else:
                self._files.rm(self._path(name), recursive=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on this machine for what nobody needs after a crash."""
        if not self.is_local:
            with tempfile.TemporaryDirectory(prefix="privatekube-") as made:
                yield Path(made)
            return
        self.remove("staging/scratch")
        place = Path(self._path("staging/scratch"))
        with self._writing("staging/scratch"):
            place.mkdir(parents=True)
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)

    # One at a time

    @contextmanager
    def held(self) -> Iterator[None]:
        """One ingest at a time. A killed one lets go of a file system at once, and of an object
        store when it has given no sign of life for a while."""
        if self.is_local and fcntl is not None:
            with self._held_here():
                yield
            return
        self._take()
        try:
            yield
        finally:
            self._signed_at = 0.0
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path("lock"))

    @contextmanager
    def _held_here(self) -> Iterator[None]:
        with self._writing("lock"):
            os.makedirs(self._root, exist_ok=True)
            lock = os.open(self._path("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._busy() from None
            yield
        finally:
            os.close(lock)

    def _take(self) -> None:
        with self._talking("lock"):
            before = self.read_json("lock")
            if before is not None and time.time() - before["alive"] < _STALE_SECONDS:
                raise self._busy()
            self._sign()
            time.sleep(0.05)  # two who begin at once: the one who wrote last has it
            if (self.read_json("lock") or {}).get("holder") != self._holder:
                raise self._busy()

    def show_life(self) -> None:
        """For whoever looks whether an object store is still held; found out if it was taken."""
        if self._signed_at and time.monotonic() - self._signed_at > _SIGN_SECONDS:
            if (self.read_json("lock") or {}).get("holder") != self._holder:
                raise self._busy()
            self._sign()

    def _sign(self) -> None:
        sign = json.dumps({"holder": self._holder, "alive": time.time()})
        with self._writing("lock"):
            self._files.pipe_file(self._path("lock"), sign.encode())
        self._signed_at = time.monotonic()

    def _busy(self) -> PrivateKubeError:
        return PrivateKubeError(
            Reason.IN_USE, f"another ingest is at work on {self.uri}; begin again when it is done"
        )

    @contextmanager
    def _talking(self, name: str) -> Iterator[None]:
        with _in_words(self.uri_of(name)):
            yield

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        """As `_talking`; but where something is written, a missing folder is an error."""
        try:
            with self._talking(name):
                yield
        except FileNotFoundError as error:
            raise _unusable(self.uri_of(name), error) from error


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _in_words(place: str) -> Iterator[None]:
    """What a file system says, as a sentence about the place. A missing file is no error."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (PrivateKubeError, ValueError, pa.ArrowException):
        raise
    except Exception as error:
        if not is_of_a_place(error):
            raise
        raise _unusable(place, error) from error


def _unusable(place: str, error: Exception) -> PrivateKubeError:
    return PrivateKubeError(
        Reason.DATA_UNWRITABLE, f"{place} cannot be used: {why_it_fails(error)}"
    )
