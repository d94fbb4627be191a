"""A prompt on its way to an answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from schemas import SamplingParams
from schemas.decode import derived_seed


def unmetered(_tokens: int) -> None:
    """Charge nobody."""


@dataclass(frozen=True)
class Prompt:
    """A request ready to be routed. `whole` asks for the answer in one piece, `choices` for so many
    answers, `deadline_seconds` (None: none) for all of them in that time; the reply begins each
    with `echoed`, and `spend` is told of the answers' tokens as they come, `found` of the prompt's
    tokens that an engine remembered. `scope`: as a DecodeRequest's; `teaches`: its vector may be
    kept."""

    token_ids: tuple[int, ...]
    text: str
    sampling: SamplingParams
    messages: tuple[Mapping[str, str], ...] = ()
    pinned: str | None = None
    whole: bool = False
    choices: int = 1
    deadline_seconds: float | None = None
    echoed: str = ""
    spend: Callable[[int], None] = unmetered
    found: Callable[[int], None] = unmetered
    scope: str = ""
    teaches: bool = True

    def further(self, index: int) -> Self:
        """The prompt of the answer with this index: the first, 0, has the seed that was asked for,
        the others derive theirs."""
        if index == 0:
            return self
        seed = derived_seed(self.sampling.seed, str(index))
        sampling = self.sampling.model_copy(update={"seed": seed})
        return replace(self, sampling=sampling, found=unmetered)
