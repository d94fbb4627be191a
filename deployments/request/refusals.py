"""Methods that cannot answer a request because their engine refuses one of its parameters."""

from collections.abc import Iterable, Sequence

from deployments.errors import ApiError
from deployments.request.prompt import Prompt
from schemas import MethodSpec
from workers.refusal import refused_draft, refused_field


class Refusals:
    """Find the methods whose engines refuse a request. portfolios: the methods of each engine."""

    def __init__(self, portfolios: Iterable[Sequence[MethodSpec]]) -> None:
        self._portfolios = [tuple(portfolio) for portfolio in portfolios]

    def excluded(self, prompt: Prompt) -> frozenset[str]:
        """Return the methods that cannot answer this prompt. Where nothing is to be drafted, these
        are all with a drafter, if there is one without.

        Raises ApiError 400 naming the parameter if the prompt pins one of them, or if no other
        method is left.
        """
        fields = {
            spec.name: field
            for portfolio in self._portfolios
            for spec in portfolio
            if (
                field := refused_field(portfolio, prompt.sampling)
                or refused_draft(spec, prompt.max_draft_tokens)
            )
        }
        served = sum(map(len, self._portfolios))
        if prompt.pinned in fields:
            others = "pin no method" if len(fields) < served else "leave it out"
            field = fields[prompt.pinned]
            raise _refused(field, f"{prompt.pinned}'s engine speculates: {others}")
        if fields and len(fields) == served:
            field = next(iter(fields.values()))
            raise _refused(field, "every method served has an engine that speculates: leave it out")
        if prompt.pinned is None and prompt.max_draft_tokens == 0:
            return frozenset(fields) | self._drafting(frozenset(fields))
        return frozenset(fields)

    def _drafting(self, refused: frozenset[str]) -> frozenset[str]:
        """Return the methods with a drafter, none if every one has a drafter or is refused."""
        specs = [spec for portfolio in self._portfolios for spec in portfolio]
        drafting = frozenset(spec.name for spec in specs if spec.drafter != "none")
        left = {spec.name for spec in specs} - drafting - refused
        return drafting if left else frozenset()


def _refused(field: str, why: str) -> ApiError:
    return ApiError(
        400,
        f"{field}: not supported by vLLM with speculative decoding; {why}",
        param=field,
        code="unsupported_parameter",
    )
