"""A prompt on its way to a response."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Self

from deployments.request.conversation import Conversation
from router.constraints import Slo
from schemas import SamplingParams
from schemas.decode import derived_seed
from workers.reasoning import Reasoning


def unmetered(_tokens: int) -> None:
    """Charge nothing."""


@dataclass(frozen=True)
class Prompt:
    """Hold a request that is ready to be routed.

    whole: the response is wanted in one piece. choices: number of responses. deadline_seconds: for
    all of them; None for no deadline. echoed: text that begins each response. silent: the prompt is
    only read, and the token that the engine emits is dropped. spend: called with the number of
    output tokens as they arrive. found: called with the prompt tokens found in a prefix cache.
    teaches: whether its vector may be kept. owner: as in Sample; None: drafters must not be trained
    on it. open_ended: whether `sampling.max_tokens` is only what the context has left. slo: how
    fast the response has to be. reasoning: where the response's reasoning is; None: it has none.
    adapter, scope, kept, expected_tokens, max_draft_tokens, predicted_token_ids: as in
    DecodeRequest.
    """

    token_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    conversation: Conversation | None = None
    pinned: str | None = None
    adapter: str | None = None
    whole: bool = False
    choices: int = 1
    deadline_seconds: float | None = None
    echoed: str = ""
    silent: bool = False
    spend: Callable[[int], None] = unmetered
    found: Callable[[int], None] = unmetered
    scope: str = ""
    teaches: bool = True
    owner: str | None = None
    kept: bool = True
    open_ended: bool = False
    expected_tokens: int | None = None
    max_draft_tokens: int | None = None
    slo: Slo = field(default_factory=Slo)
    predicted_token_ids: tuple[int, ...] = ()
    reasoning: Reasoning | None = None

    @property
    def drafted_as_usual(self) -> bool:
        """Return whether methods draft for this prompt as they do for others.

        With a predicted response they accept more, with a bound on drafts less. Such a response
        says nothing about other prompts.
        """
        return self.max_draft_tokens is None and not self.predicted_token_ids

    def further(self, index: int) -> Self:
        """Return the prompt of the response with this index. Answer 0 keeps the seed; the others
        derive theirs."""
        if index == 0:
            return self
        seed = derived_seed(self.sampling.seed, str(index))
        sampling = self.sampling.model_copy(update={"seed": seed})
        return replace(self, sampling=sampling, found=unmetered)
