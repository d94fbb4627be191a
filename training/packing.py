"""Answers that a head learns from, packed into bins of one length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OPEN_BINS = 16


@dataclass(frozen=True)
class Text:
    """A prompt of `prompt` tokens and its response, together int64 [n], and the domain of the
    prompt.

    repeats: how often a pass over the data sees it.
    """

    tokens: NDArray[np.int64]
    prompt: int
    domain: str = ""
    repeats: float = 1.0

    @staticmethod
    def of(
        prompt: Sequence[int], answer: Sequence[int], domain: str = "", longest: int | None = None
    ) -> "Text":
        """Make a text. One of more than `longest` tokens loses its first tokens."""
        tokens = np.asarray((*prompt, *answer), dtype=np.int64)
        left_out = 0 if longest is None else max(0, len(tokens) - longest)
        return Text(tokens[left_out:], max(0, len(prompt) - left_out), domain)

    @property
    def answer(self) -> NDArray[np.int64]:
        """Return the response's tokens."""
        return self.tokens[self.prompt :]


def mixed(texts: Sequence[Text], others: Sequence[Text], share: float) -> list[Text]:
    """Return `texts` with as many of `others` as make up `share` of a pass; 0 <= share < 1."""
    own, other = (sum(len(text.answer) * text.repeats for text in each) for each in (texts, others))
    scale = share / (1 - share) * own / max(1.0, other)
    return [*texts, *(replace(text, repeats=text.repeats * scale) for text in others)]


def frequent_tokens(texts: Sequence[Text], vocabulary: int, count: int) -> NDArray[np.int64]:
    """Return the `count` most frequent answer tokens of a pass, ascending."""
    counts = token_counts(texts, vocabulary)
    return np.sort(np.argsort(-counts, kind="stable")[:count])


def token_counts(texts: Sequence[Text], vocabulary: int) -> NDArray[np.float64]:
    """Return how often answers hold each token in a pass, [vocabulary]."""
    counts = np.zeros(vocabulary)
    for text in texts:
        np.add.at(counts, text.answer, text.repeats)
    return counts


class Batch(NamedTuple):
    """Bins for a head.

    inputs, labels int64 [rows, length]. documents int64 [rows, length]: the number of each token's
    text, 0 for padding. bins int64 [rows]: numbers of the bins. slots int64 [n]: flat places that
    are learned from. weights float32 [n, positions]: whether each drafted position of a slot
    counts.
    """

    inputs: NDArray[np.int64]
    labels: NDArray[np.int64]
    documents: NDArray[np.int64]
    bins: NDArray[np.int64]
    slots: NDArray[np.int64]
    weights: NDArray[np.float32]


class PackedTexts:
    """A fixed packing of texts into bins of `length` tokens; longer texts are cut.

    The target's states of a bin serve every pass. A text occurs as often as its `repeats` say,
    drawn once for all passes. Raises ValueError without texts.
    """

    def __init__(self, texts: Sequence[Text], length: int, positions: int, seed: int = 0) -> None:
        if not texts:
            raise ValueError("there is no answer to learn from")
        self.texts, self.length, self.positions, self.seed = texts, length, positions, seed
        rng = np.random.default_rng(seed)
        repeats = np.array([text.repeats for text in texts])
        times = np.floor(repeats + rng.random(len(texts))).astype(np.int64)
        self.bins = self._pack(rng.permutation(np.repeat(np.arange(len(texts)), times)))

    def __len__(self) -> int:
        return len(self.bins)

    def batches(self, tokens: int) -> Iterator[Batch]:
        """Yield batches of `tokens` tokens endlessly, with the bins in another order every pass."""
        count = max(1, tokens // self.length)
        epoch = 0
        while True:
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self.bins))
            order = np.resize(order, -(-len(order) // count) * count)
            for start in range(0, len(order), count):
                yield self.batch(order[start : start + count])
            epoch += 1

    def batch(self, bins: NDArray[np.int64]) -> Batch:
        """Return the batch of some bins."""
        shape = (len(bins), self.length + 1)
        ids, documents = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        learned = np.zeros(shape, dtype=np.float32)
        for place, number in enumerate(bins):
            at = 0
            for document, index in enumerate(self.bins[number], start=1):
                text = self.texts[index]
                end = min(at + len(text.tokens), self.length)
                ids[place, at:end] = text.tokens[: end - at]
                documents[place, at:end] = document
                # A text's first token cannot be predicted from the text before it.
                learned[place, at + max(1, text.prompt) : end] = 1.0
                at = end
        documents = documents[:, :-1]
        weights = self._weights(learned[:, 1:], documents)
        slots = np.flatnonzero(weights[:, 0])
        return Batch(ids[:, :-1], ids[:, 1:], documents, bins, slots, weights[slots])

    def _pack(self, order: NDArray[np.int64]) -> list[list[int]]:
        """Pack texts by best fit into the most recently opened bins."""
        packed: list[list[int]] = []
        room: list[int] = []
        for index in order:
            size = min(len(self.texts[index].tokens), self.length)
            first = max(0, len(packed) - OPEN_BINS)
            fitting = [i for i in range(first, len(packed)) if room[i] >= size]
            if not fitting:
                packed.append([])
                room.append(self.length)
            chosen = min(fitting, key=lambda i: room[i], default=len(packed) - 1)
            packed[chosen].append(int(index))
            room[chosen] -= size
        return packed

    def _weights(
        self, learned: NDArray[np.float32], documents: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return weights [rows * length, positions].

        Position j of slot i counts if label i + 1 + j is learned and of the same text.
        """
        result = np.zeros((*learned.shape, self.positions), dtype=np.float32)
        for j in range(min(self.positions, self.length - 1)):
            ahead = 1 + j
            same = documents[:, ahead:] == documents[:, : self.length - ahead]
            result[:, : self.length - ahead, j] = learned[:, ahead:] * same
        return result.reshape(-1, self.positions)
