"""POST /v1/embeddings: the vectors that prompts are routed by, in OpenAI's shape."""

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from deployments.api.input import Input
from deployments.errors import ApiError, overloaded, unavailable
from deployments.request.prompt import unmetered
from router.embed import Encoder

MAX_INPUTS = 2048
MAX_CHARACTERS = 8192
MAX_WAITING = 2 * MAX_INPUTS

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]
Result = TypeVar("Result")


class EmbeddingRequest(Input):
    """One text, or up to 2048 of at most 8192 characters; `dimensions` may only repeat the
    encoder's own, `user` is without effect."""

    model: str
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None

    @field_validator("input", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, list) and any(isinstance(one, int | list) for one in value):
            raise ApiError(
                400,
                "input: token ids are not supported; send text",
                param="input",
                code="unsupported_parameter",
            )
        return value

    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class Embeddings:
    """Embed texts for clients with the router's encoder, which may be None.

    Texts are embedded one at a time on one thread: prompts that wait for routing need the same
    cores.
    """

    def __init__(self, encoder: Encoder | None) -> None:
        self._encoder = encoder
        self._waiting = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")

    @property
    def models(self) -> list[str]:
        """Return the names that a request may give as its model."""
        return [] if self._encoder is None else [self._encoder.info.name]

    async def answer(
        self, asked: EmbeddingRequest, charge: Callable[[int], None] = unmetered
    ) -> dict[str, Any]:
        """Return the response body; `charge` is called with the texts' tokens before they are
        embedded.

        Raises ApiError: 404 for another model, 400 for a text with more tokens than the encoder
        reads, 429 if too many texts wait, 503 without an encoder, and what `charge` raises.
        """
        encoder = self._encoder
        if encoder is None:
            raise unavailable(
                "the encoder is missing: run `specadapt export-encoder`, then restart"
            )
        _check_model(asked, encoder)
        texts = asked.texts()
        if self._waiting + len(texts) > MAX_WAITING:
            raise overloaded("too many texts wait to be embedded; try again shortly")
        self._waiting += len(texts)
        try:
            tokens = [await self._in_thread(encoder.token_count, text) for text in texts]
            for index, count in enumerate(tokens):
                if count > encoder.max_tokens:
                    raise _too_long(asked, index, count, encoder.max_tokens)
            charge(sum(tokens))
            vectors = [(await self._in_thread(encoder.embed, [text]))[0] for text in texts]
        finally:
            self._waiting -= len(texts)
        written = _base64 if asked.encoding_format == "base64" else _floats
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": written(vector)}
                for index, vector in enumerate(vectors)
            ],
            "model": asked.model,
            "usage": {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)},
        }

    async def _in_thread(self, call: Callable[..., Result], *args: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *args)


def _check_model(asked: EmbeddingRequest, encoder: Encoder) -> None:
    name, dimension = encoder.info.name, encoder.info.dimension
    if asked.model != name:
        raise ApiError(
            404,
            f"the model {asked.model!r} does not embed; {name} does",
            param="model",
            code="model_not_found",
        )
    if asked.dimensions not in (None, dimension):
        raise ApiError(
            400,
            f"dimensions: {name} has {dimension}; leave it out",
            param="dimensions",
            code="unsupported_parameter",
        )


def _too_long(asked: EmbeddingRequest, index: int, count: int, limit: int) -> ApiError:
    param = "input" if isinstance(asked.input, str) else f"input[{index}]"
    return ApiError(
        400,
        f"{param}: {asked.model} reads {limit} tokens; the text has {count}",
        param=param,
        code="context_length_exceeded",
    )


def _floats(vector: NDArray[np.float32]) -> list[float]:
    return [float(value) for value in vector]


def _base64(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
