"""The state of one request while it is answered."""

import itertools
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from schemas import DecodeRequest, DrafterStats, FinishReason, SamplingParams, TokenLogprobs
from workers.drafting.lookup.prediction import Prediction
from workers.engine_load import Answer, by_position
from workers.stream import Stream
from workers.torch_engine.logit_processor import LogitProcessor
from workers.torch_engine.models.kv_pool import Lease
from workers.torch_engine.tree import Path, TokenTree

_ids = itertools.count()


PHASES = ("draft_seconds", "verify_seconds", "sample_seconds", "stalled_seconds")


class DecodeSequence(Answer):
    """A request's tokens, lease of the KV pool, generator and statistics.

    seconds: of the sequence's steps by phase, on the wall clock. drafted, accepted: levels.
    """

    def __init__(
        self,
        request: DecodeRequest,
        stream: Stream,
        *,
        tokenizer: Tokenizer,
        eos: frozenset[int],
        processor: LogitProcessor | None = None,
    ) -> None:
        super().__init__(request, tokenizer, eos)
        self.id = next(_ids)
        self.stream = stream
        self.rng = random.Random(request.seed)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.drafted = self.accepted = 0
        self._levels: list[tuple[int, int]] = []
        self.finished: FinishReason | None = None
        self.processor = processor
        self._prompt_logprobs: list[TokenLogprobs] = []
        predicted = request.predicted_token_ids
        begins = len(request.prompt_token_ids)
        self.prediction = Prediction(predicted, begins) if predicted else None
        """What look-ups may copy from, if the client predicted the response."""
        self.head_versions: dict[str, int] = {}
        """By part: the version of the head that drafts. Set by HeadVersions."""
        self._by_drafter: dict[str, Counter[str]] = defaultdict(Counter)
        self._lease: Lease | None = None
        self._admitted = 0.0

    @property
    def method(self) -> str:
        """The name of the method that the request asks for."""
        return self.request.method

    @property
    def sampling(self) -> SamplingParams:
        """The request's sampling parameters."""
        return self.request.sampling

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.sampling.max_tokens - self.answer_index

    @property
    def draftable(self) -> int:
        """Longest draft that may be verified in the next step, in levels."""
        longest, most = self.remaining - 1, self.request.max_draft_tokens
        return longest if most is None else min(longest, most)

    @property
    def unread(self) -> int:
        """Tokens that the target has not read yet."""
        return len(self.tokens) - self.lease.length

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether the request asks for the prompt's log probabilities. A request that continues an
        answer got them before."""
        return self.sampling.prompt_logprobs is not None and not self.request.answered_token_ids

    @property
    def reads_prompt(self) -> bool:
        """Whether the next forward reads prompt tokens and must return their log probabilities."""
        return self.wants_prompt_logprobs and not self.output_tokens

    def read_prompt(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """Keep the next prompt tokens' log probabilities for the first chunk."""
        self._prompt_logprobs.extend(logprobs)

    @property
    def lease(self) -> Lease:
        """The lease of the target's KV pool. Raises RuntimeError before admission and after
        `leave`."""
        if self._lease is None:
            raise RuntimeError(f"sequence {self.id} has no lease of the KV pool")
        return self._lease

    @property
    def admitted(self) -> bool:
        """Whether it holds a lease."""
        return self._lease is not None

    def admit(self, lease: Lease) -> None:
        """Take a lease, whose row may hold the prompt's beginning, and end the waiting time."""
        self._lease = lease
        self.stream.cached_prompt_tokens = self._cached = lease.length
        self._admitted = time.perf_counter()

    def leave(self) -> None:
        """Give up the lease."""
        self._lease = None

    def emit(
        self,
        tree: TokenTree,
        path: Path,
        logprobs: Sequence[TokenLogprobs] = (),
        drafter: str | None = None,
    ) -> None:
        """Append a step's tokens up to the response's end, and hand them to the consumer.

        logprobs: one per token of the path and the bonus, where the request asks for them.
        drafter: the one that drafted the tree, where its method has several.
        """
        emitted = [*(tree.tokens[node] for node in path.nodes), path.bonus]
        kept, text = self._text.push(emitted[: self.remaining])
        self.tokens.extend(emitted[:kept])
        self._last = time.perf_counter()
        self._first = self._first or self._last
        self._steps += 1
        if self.prediction is not None:
            copied, accepted = _copied(tree, path, self.prediction.ahead)
            self.prediction.count(copied, min(accepted, kept))
        drafted, accepted = tree.drafted_levels, min(len(path.nodes), kept)
        self.drafted, self.accepted = self.drafted + drafted, self.accepted + accepted
        self._levels.append((drafted, accepted))
        if drafter is not None:
            counts = self._by_drafter[drafter]
            counts.update(steps=1, drafted_tokens=drafted, accepted_tokens=accepted)
        if self._text.ended:
            self.finished = "stop"
        elif self.remaining == 0:
            self.finished = "length"
        if self.finished is not None:
            text += self._text.flush()
        was_drafted = [position < len(path.nodes) for position in range(kept)]
        told, self._prompt_logprobs = self._prompt_logprobs, []
        self.stream.push(text, emitted[:kept], was_drafted, logprobs[:kept], told)

    def _counts(self, seconds: float) -> dict[str, Any]:
        admitted = self._admitted or time.perf_counter()
        return {
            **super()._counts(seconds),
            **self.seconds,
            "drafted_tokens": self.drafted,
            "accepted_tokens": self.accepted,
            **by_position(self._levels),
            "drafted_prediction_tokens": self.prediction.drafted if self.prediction else 0,
            "accepted_prediction_tokens": self.prediction.accepted if self.prediction else 0,
            "by_drafter": {n: DrafterStats(**told) for n, told in self._by_drafter.items()},
            "head_versions": dict(self.head_versions),
            "queue_seconds": admitted - self._submitted,
            "stalled_seconds": min(seconds, self.seconds["stalled_seconds"]),
            "other_seconds": max(0.0, seconds - sum(self.seconds.values())),
        }


def _copied(tree: TokenTree, path: Path, text: Sequence[int]) -> tuple[int, int]:
    """Return how many levels of a tree are the tokens of a text, and how many of them were
    accepted."""
    nodes = tree.follow(text)
    return len(nodes), len({*nodes} & {*path.nodes})
