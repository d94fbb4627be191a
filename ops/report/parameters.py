"""How many parameters a method's models have."""

import math
from collections.abc import Iterable
from pathlib import Path

from workers.bundle import Bundle
from workers.portfolio import method_of, parts_of
from workers.weight_files import StoredTensor, stored_tensors


def parameters_by_method(bundle: Bundle, methods: Iterable[str]) -> dict[str, int]:
    """Return the parameters of the target and a method's drafting parts, by method."""
    return {
        name: sum(parameters(folder) for folder in folders_of(name, bundle)) for name in methods
    }


def folders_of(method: str, bundle: Bundle) -> list[Path]:
    """The target's, and those of all parts that the method drafts with."""
    parts = parts_of(method_of(method, bundle), bundle)
    return [bundle.part(part) for part in ("target", *parts)]


def parameters(folder: Path) -> int:
    """Count the numbers in a model's floating-point tensors, shared ones once.

    Raises BundleError where the weights cannot be read.
    """
    return sum(math.prod(tensor.shape) for tensor in _floats(folder))


def stored_bytes(folder: Path) -> int:
    """Add up what these tensors take in the model's files."""
    return sum(tensor.bytes for tensor in _floats(folder))


def _floats(folder: Path) -> list[StoredTensor]:
    return [tensor for tensor in stored_tensors(folder).values() if tensor.is_float]
