"""Flags that list numbers, such as `--batches 1,4,16`."""

from collections.abc import Callable

from ops.harness.boundary import InputError


def whole_numbers(text: str, flag: str, least: int) -> list[int]:
    """Parse whole numbers of at least `least`; sort them and drop repeats. Raises InputError."""
    listed = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in listed):
        wanted = f"whole numbers of {least} or more"
        raise InputError(f"{flag}: {wanted}, separated by commas, not {text!r}")
    return sorted({int(part) for part in listed})


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


def load_shares(text: str) -> list[float]:
    """Parse `--shares`. Raises InputError."""
    return numbers(text, "--shares", "numbers above 0", lambda one: 0.0 < one < float("inf"))
