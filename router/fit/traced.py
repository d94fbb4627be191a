"""Expected steps of traced answers."""

from collections.abc import Sequence


def expected_steps(kept: Sequence[Sequence[float]], tokens: int) -> float:
    """Return the expected target steps of an answer, the prefill included.

    kept: per position from the second token on, the probabilities that the first, the first two,
    ... draft tokens are accepted. A step that accepts a draft tokens emits one more, and the next
    step is at the position behind them. Raises ValueError unless there are tokens - 1 positions.
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
