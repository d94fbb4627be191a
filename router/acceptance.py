"""From what would be kept at every position of an answer to the steps that decoding it takes."""

from collections.abc import Sequence


def expected_steps(kept: Sequence[Sequence[float]], tokens: int) -> float:
    """Target steps, the prefill's among them, that an answer of so many tokens takes.

    kept: per position from the second token on, the probability that the first, the first two, ...
    draft tokens are kept. A step at a position keeps a draft tokens and adds one, and the next
    step is at the position behind these; the expectation goes from the answer's end backward.
    Raises ValueError where there are not as many positions as that.
    """
    if len(kept) != max(0, tokens - 1):
        raise ValueError(f"{len(kept)} positions for an answer of {tokens} tokens")
    if tokens == 0:
        return 0.0
    after = [0.0] * (tokens + 1)  # steps from position i on
    for position in range(tokens - 1, 0, -1):
        reached = [1.0, *kept[position - 1], 0.0]
        after[position] = 1.0 + sum(
            (reached[a] - reached[a + 1]) * after[min(position + a + 1, tokens)]
            for a in range(len(reached) - 1)
        )
    return 1.0 + after[1] if tokens > 1 else 1.0
