"""The definition of answers that have fallen into a loop."""

from collections.abc import Sequence

WINDOW = 32
REPEATS = 3


def is_looping(output_token_ids: Sequence[int]) -> bool:
    """Return whether the last 32 tokens are three or more repeats of one n-gram.

    The n-gram has 1 to 10 tokens (three of them must fit) and its last repeat may be cut short
    by the end of the window. Answers under 32 tokens cannot loop.
    """
    if len(output_token_ids) < WINDOW:
        return False
    tail = list(output_token_ids[-WINDOW:])
    return any(tail[n:] == tail[:-n] for n in range(1, WINDOW // REPEATS + 1))
