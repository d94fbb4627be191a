"""Flags that list numbers, such as `--batches 1,4,16`."""

from collections.abc import Callable

from ops.harness.boundary import InputError


def numbers(text: str, flag: str, wanted: str, fits: Callable[[float], bool]) -> list[float]:
    """Parse numbers in their order without repeats.

    Raises InputError, which names what is `wanted`, for text that is not a number and for numbers
    that do not fit.
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(map(fits, found)):
        raise InputError(f"{flag}: {wanted}, separated by commas, not {text!r}")
    return list(dict.fromkeys(found))
