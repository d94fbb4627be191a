"""Many texts to vectors, with progress."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ops.harness.output import progress
from router.embed import Encoder

CHUNK = 64


def embed(encoder: Encoder, texts: Sequence[str], label: str) -> NDArray[np.float32]:
    """Unit vectors [n, dimension] of the texts."""
    chunks = [np.empty((0, encoder.info.dimension), dtype=np.float32)]
    with progress() as bar:
        task = bar.add_task(label, total=len(texts))
        for start in range(0, len(texts), CHUNK):
            part = texts[start : start + CHUNK]
            chunks.append(encoder.embed(part))
            bar.advance(task, len(part))
    return np.concatenate(chunks)
