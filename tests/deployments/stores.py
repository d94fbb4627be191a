"""Stores that go away, and come back."""

import threading
from contextlib import contextmanager
from pathlib import Path

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


@contextmanager
def gone(config):
    """The state's folder is away, and a file is where it was."""
    folder = Path(config.feedback.state_uri)
    aside = folder.with_name(f"{folder.name}-aside")
    if folder.exists():
        folder.rename(aside)
    folder.write_text("no folder")
    try:
        yield
    finally:
        folder.unlink()
        if aside.exists():
            aside.rename(folder)


_writing = threading.Lock()


class Gated(MemoryFileSystem):
    """A store in memory each call of which waits while the gate is shut, as a hung mount's does."""

    protocol = "gated"
    store, pseudo_dirs = {}, [""]
    gate = threading.Event()
    waiting = threading.Semaphore(0)

    def ls(self, path, detail=True, **kwargs):
        self._pass()
        return super().ls(path, detail=detail, **kwargs)

    def exists(self, path, **kwargs):
        self._pass()
        return super().exists(path, **kwargs)

    def _pass(self):
        if not self.gate.is_set():
            self.waiting.release()
        assert self.gate.wait(120)


class Bucket(MemoryFileSystem):
    """A store in memory that has no folders, as object stores have none."""

    protocol = "bucket"
    store, pseudo_dirs = {}, [""]

    def makedirs(self, path, exist_ok=False):
        """Nothing: there are only files."""

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        """Of two writers that create one file, one fails, as in a real bucket."""
        with _writing:
            super().pipe_file(path, value, mode=mode, **kwargs)


for _kind in (Gated, Bucket):
    fsspec.register_implementation(_kind.protocol, _kind, clobber=True)
