"""The file system that `feedback.state_uri` names."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
"""By the URI's protocol: which of our extras has its file system."""


class StoreAwayError(OSError):
    """The store cannot be opened, or a call of it failed or did not end in time."""


def file_system(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URI, and the folder in it.

    Raises StoreAwayError naming what to install for a protocol that has no file system here.
    """
    try:
        return fsspec.core.url_to_fs(uri)  # type: ignore[no-any-return]
    except ImportError as error:
        extra = _EXTRAS.get(uri.partition("://")[0])
        fix = f": pip install 'specadapt[{extra}]'" if extra else ""
        raise StoreAwayError(f"{uri}: {error}{fix}") from error
    except ValueError as error:
        raise StoreAwayError(f"{uri}: {error}") from error


def replace_file(fs: Any, path: str, body: bytes) -> None:
    """Write a file whole or not at all, in place of the one at `path` if there is one.

    A process killed meanwhile leaves at most `<path>.<hex digits>.tmp` in a local folder.
    """
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, body)  # object stores put an object whole or not at all
        return
    with _written_aside(fs, path, body) as temporary:
        os.replace(temporary, path)  # noqa: PTH105 - the path is fsspec's


def create_file(fs: Any, path: str, body: bytes) -> None:
    """Write a file that does not exist yet, as `replace_file` does. Raises FileExistsError."""
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(path, body, mode="create")
        return
    with _written_aside(fs, path, body) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a mount without hard links: others may see the file before its content
            with fs.open(path, "xb") as file:
                file.write(body)


@contextmanager
def _written_aside(fs: Any, path: str, body: bytes) -> Iterator[str]:
    """Yield a file next to `path` with this content, and remove it afterwards."""
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        with fs.open(temporary, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        if fs.exists(temporary):
            fs.rm_file(temporary)
