"""The names that a request may give as its model."""

from collections.abc import Iterable
from typing import NamedTuple

from deployments.errors import ApiError


class Chosen(NamedTuple):
    """What a model's name asks for: an adapter of the target, and the method that answers."""

    adapter: str | None = None
    method: str | None = None


class ModelNames:
    """Know a bundle's names: BUNDLE, BUNDLE:METHOD, BUNDLE:ADAPTER and BUNDLE:ADAPTER:METHOD."""

    def __init__(self, bundle: str, methods: Iterable[str], adapters: Iterable[str]) -> None:
        self.bundle = bundle
        by_method = {f"{bundle}:{method}": Chosen(None, method) for method in methods}
        by_adapter = {f"{bundle}:{adapter}": Chosen(adapter) for adapter in adapters}
        self.listed = (bundle, *by_method, *by_adapter)
        """The names of /v1/models. Those with adapter and method are left out: they are many."""
        both = {
            f"{name}:{pinned.method}": Chosen(chosen.adapter, pinned.method)
            for name, chosen in by_adapter.items()
            for pinned in by_method.values()
        }
        self._chosen = {bundle: Chosen(), **by_method, **by_adapter, **both}

    def chosen(self, model: str) -> Chosen:
        """Return what a name asks for. Raises ApiError 404 `model_not_found` for any other name."""
        chosen = self._chosen.get(model)
        if chosen is None:
            raise ApiError(
                404,
                f"the model {model!r} does not exist; available models: {', '.join(self.listed)}",
                param="model",
                code="model_not_found",
            )
        return chosen

    def parent(self, model: str) -> str | None:
        """Return the model that a name's adapter adapts, None without one. Raises as `chosen`."""
        return None if self.chosen(model).adapter is None else self.bundle
