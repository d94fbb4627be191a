"""vLLM's Medusa heads with a truncated vocabulary, which vLLM 0.32 refuses to load."""

from collections.abc import Iterable

import torch
from vllm.model_executor.models.medusa import Medusa


class MedusaModel(Medusa):
    """Reports the vocabulary's map as loaded; vLLM's loader takes it for missing otherwise."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """The names of the parameters that were in the checkpoint."""
        loaded: set[str] = super().load_weights(weights)
        return loaded if self.token_map is None else loaded | {"token_map"}
