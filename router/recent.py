"""The last answers with their prompts' vectors: what a refit is made from."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from router import cluster
from schemas import Observation

CAPACITY = 2048
"""Answers: they take up to 18 MB (9 KB each, of which vectors of 384 dimensions are 2), and no cell
of a table remembers more of them."""


class RecentAnswers:
    """The newest `capacity` answers whose prompt's vector is known, each once, oldest first."""

    def __init__(self, dimension: int, capacity: int = CAPACITY) -> None:
        self._dimension = dimension
        self._capacity = capacity
        self._answers: OrderedDict[str, tuple[Observation, NDArray[np.float32]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, observation: Observation) -> NDArray[np.float32] | None:
        """The vector [d] of an answer not seen before that carries one of this width."""
        if observation.vector is None or observation.observation_id in self._answers:
            return None
        try:
            vector = cluster.unpacked(observation.vector, self._dimension)
        except ValueError:
            return None
        self._answers[observation.observation_id] = (observation, vector)
        if len(self._answers) > self._capacity:
            self._answers.popitem(last=False)
        return vector

    def all(self) -> tuple[list[Observation], NDArray[np.float32]]:
        """Observations and their vectors [n, d]."""
        observations = [observation for observation, _ in self._answers.values()]
        vectors = [vector for _, vector in self._answers.values()]
        return observations, np.asarray(vectors, np.float32).reshape(-1, self._dimension)
