"""What every family of programs makes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """A program, what it does in words, and the slots it was made from."""

    language: str
    group: str
    name: str
    description: str
    code: str
