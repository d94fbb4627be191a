"""vLLM's Medusa heads with a truncated vocabulary, which vLLM 0.32 refuses to load."""

from collections.abc import Iterable

import torch
from vllm.model_executor.models.medusa import Medusa


class MedusaModel(Medusa):
    """Medusa heads that report the vocabulary's map as loaded, so that vLLM does not miss it."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load the weights and return the names of the loaded parameters."""
        loaded: set[str] = super().load_weights(weights)
        return loaded if self.token_map is None else loaded | {"token_map"}
