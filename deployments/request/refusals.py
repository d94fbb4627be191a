"""Methods that cannot answer a request because their engine refuses one of its parameters."""

from collections.abc import Iterable, Sequence

from deployments.errors import ApiError
from deployments.request.prompt import Prompt
from schemas import MethodSpec
from workers.methods import keeps_every_answer, refused_draft, refused_field

STORE = "store"


class Refusals:
    """Find the methods whose engines refuse a request.

    portfolios: the methods of each engine. elsewhere: the engines are servers that our settings do
    not reach.
    """

    def __init__(
        self, portfolios: Iterable[Sequence[MethodSpec]], *, elsewhere: bool = False
    ) -> None:
        self._specs = [(spec, tuple(engine)) for engine in portfolios for spec in engine]
        self._keeping = {
            spec.name for spec, _ in self._specs if keeps_every_answer(spec, elsewhere=elsewhere)
        }

    def excluded(self, prompt: Prompt) -> frozenset[str]:
        """Return the methods that cannot answer this prompt. Where nothing is to be drafted, these
        are all with a drafter, if there is one without.

        Raises ApiError 400 naming the parameter if the prompt pins one of them, or if no other
        method is left.
        """
        fields = {
            spec.name: field
            for spec, engine in self._specs
            if (
                field := refused_field(engine, prompt.sampling)
                or refused_draft(spec, prompt.max_draft_tokens)
            )
        }
        if not prompt.kept:
            fields |= dict.fromkeys(self._keeping - fields.keys(), STORE)
        served = len(self._specs)
        if prompt.pinned in fields:
            others = "pin no method" if len(fields) < served else "leave it out"
            raise _refused(fields[prompt.pinned], prompt.pinned, others)
        if fields and len(fields) == served:
            raise _refused(next(iter(fields.values())), "every method served", "leave it out")
        if prompt.pinned is None and prompt.max_draft_tokens == 0:
            plain = {spec.name for spec, _ in self._specs if spec.drafter == "none"} - fields.keys()
            if plain:
                return frozenset(spec.name for spec, _ in self._specs if spec.name not in plain)
        return frozenset(fields)


def _refused(field: str, who: str, fix: str) -> ApiError:
    why = f"not supported by vLLM with speculative decoding; {who} has an engine that speculates"
    if field == STORE:
        why = (
            "the answer must not be kept (`store: false`, or the header x-specadapt-no-learning), "
            f"but {who} keeps every answer"
        )
    message = f"{field}: {why}: {fix}"
    return ApiError(400, message, param=field, code="unsupported_parameter")
