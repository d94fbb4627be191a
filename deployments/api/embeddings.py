"""POST /v1/embeddings: the vectors that prompts are routed by, in OpenAI's shape."""

import base64
from functools import partial
from operator import methodcaller
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from deployments.api.fair_threads import FairThreads
from deployments.api.input import Input
from deployments.errors import invalid, no_model, unavailable
from deployments.guard.caller import Caller
from router.embed import Encoder

MAX_INPUTS = 2048
MAX_CHARACTERS = 8192

UNSUPPORTED = "unsupported_parameter"

Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]


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
            raise invalid("input", "token ids are not supported; send text", UNSUPPORTED)
        return value

    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class Embeddings:
    """Embed texts for clients with the router's encoder, which may be None.

    Texts are embedded one at a time on one thread, in turn by caller: prompts that wait for routing
    need the same cores.
    """

    def __init__(self, encoder: Encoder | None) -> None:
        self._encoder = encoder
        self._threads = FairThreads([encoder], "embed")

    @property
    def models(self) -> list[str]:
        """Return the names that a request may give as its model."""
        return [] if self._encoder is None else [self._encoder.info.name]

    async def answer(self, asked: EmbeddingRequest, caller: Caller) -> dict[str, Any]:
        """Return the response body. The caller is charged for the texts' tokens, and for counting
        them.

        Raises ApiError: 404 for another model, 400 for a text with more tokens than the encoder
        reads, 429 if the caller's limits do not allow the tokens now, 503 without an encoder.
        """
        encoder = self._encoder
        if encoder is None:
            raise unavailable("the encoder cannot be read: see the log, then restart")
        name, dimension, limit = encoder.info.name, encoder.info.dimension, encoder.max_tokens
        if asked.model != name:
            raise no_model(f"the model {asked.model!r} does not embed; {name} does")
        if asked.dimensions not in (None, dimension):
            raise invalid("dimensions", f"{name} has {dimension}; leave it out", UNSUPPORTED)
        texts = asked.texts()

        run, tokens = partial(self._threads.run, caller.owner), list[int]()
        for index, text in enumerate(texts):
            count = await run(len(text), methodcaller("token_count", text), caller.worked)
            tokens.append(count)
            if count > limit:
                field = "input" if isinstance(asked.input, str) else f"input[{index}]"
                why = f"{name} reads {limit} tokens; the text has {count}"
                raise invalid(field, why, "context_length_exceeded")
        caller.read(sum(tokens))
        found = [await run(len(text), methodcaller("embed", [text])) for text in texts]
        packed = asked.encoding_format == "base64"
        vectors = [_base64(vector) if packed else vector.tolist() for [vector] in found]
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(vectors)
            ],
            "model": asked.model,
            "usage": {"prompt_tokens": sum(tokens), "total_tokens": sum(tokens)},
        }


def _base64(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
