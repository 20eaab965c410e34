"""An object store in a folder, for tests: whole objects under keys, and nothing else.

No folders, no renaming, no appending, no locks; an object is there when its upload is complete.
"""

import os
import tempfile
import urllib.parse
from pathlib import Path

import fsspec
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class BucketFileSystem(AbstractFileSystem):
    """bucket://name/key, kept under the folder that the environment names."""

    protocol = "bucket"
    cachable = False

    @property
    def _folder(self):
        return Path(os.environ["TEST_BUCKETS"])

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path).strip("/")

    def _file(self, path):
        return self._folder / urllib.parse.quote(self._strip_protocol(path), safe="")

    def _keys(self):
        return [urllib.parse.unquote(path.name) for path in self._folder.iterdir()]

    def ls(self, path, detail=True, **_):
        prefix = self._strip_protocol(path)
        found = {}
        for key in self._keys():
            if key == prefix:
                found[key] = self._about(key)
            elif key.startswith(f"{prefix}/") or not prefix:
                rest = key[len(prefix) :].lstrip("/")
                name = f"{prefix}/{rest.split('/')[0]}".strip("/")
                found[name] = (
                    {"name": name, "size": 0, "type": "directory"}
                    if "/" in rest
                    else self._about(key)
                )
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else sorted(found)

    def _about(self, key):
        told = self._file(key).stat()
        return {"name": key, "size": told.st_size, "type": "file", "etag": str(told.st_mtime_ns)}

    def cat_file(self, path, start=None, end=None, **_):
        return self._file(path).read_bytes()[start:end]

    def pipe_file(self, path, value, mode="overwrite", **_):
        handle, made = tempfile.mkstemp(dir=self._folder.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(value)
        os.replace(made, self._file(path))

    def put_file(self, lpath, rpath, **_):
        self.pipe_file(rpath, Path(lpath).read_bytes())

    def rm_file(self, path):
        self._file(path).unlink()

    def _open(self, path, mode="rb", **how):
        if mode != "rb":
            raise NotImplementedError("objects are uploaded whole")
        return _Object(self, self._strip_protocol(path), mode, size=self.info(path)["size"])


class _Object(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        return self.fs.cat_file(self.path, start, end)


fsspec.register_implementation("bucket", BucketFileSystem, clobber=True)
