"""The file system that `feedback.state_uri` names."""

from typing import Any

import fsspec

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
