"""The stop `batch_schedule` limits drafts by the batch, and answers stay the target's own."""

from typing import Any

import pytest
from decoding import Answer, assert_greedy
from rig import Rig
from test_exactness import prompts

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.methods import get_method
from workers.torch_engine.sequence import DecodeSequence

ROWS, TOKENS = 5, 72
ASKED = prompts(7, 5, seed=9)
DRAFTED = ["draft_verify", "ngram", "specinfer", "medusa", "eagle", "eagle2", "eagle3"]
SCHEDULE: dict[str, Any] = {"batches": (1, 2, 4), "gammas": (3, 1, 0)}


def scheduled(name: str, **schedule: Any) -> MethodSpec:
    spec = get_method(name)
    settings = spec.settings | {"stop": schedule}
    return spec.model_copy(update={"stop": "batch_schedule", "settings": settings})


def drafted(sequence: DecodeSequence) -> int:
    """Return the number of tokens drafted for a sequence."""
    return sum(sequence.tally.drafted)


@pytest.mark.parametrize("name", DRAFTED)
def test_batches_that_grow_and_shrink(seven: Bundle, name: str) -> None:
    """Between rounds of drafting, decode plainly for more tokens than a drafter reads at once."""
    rig = Rig(seven, [scheduled(name, **SCHEDULE), "naive"], max_batch=ROWS)

    def submit(method: str, which: int, tokens: int) -> tuple[DecodeSequence, int, int]:
        return rig.submit(method, ASKED[which], max_tokens=tokens), which, tokens

    asked = [submit(name, 0, TOKENS)]
    first = asked[0][0]
    for _ in range(5):
        rig.round()
    alone = drafted(first)
    # four more, one of another method: everybody decodes plainly
    asked += [submit(m, i + 1, 26 + i) for i, m in enumerate([name, "naive", name, name])]
    while any(not sequence.output_tokens for sequence, _, _ in asked):
        rig.round()
    crowded = drafted(first)
    for _ in range(20):
        rig.round()
    assert drafted(first) == crowded
    asked += [submit(name, 1, 20), submit(name, 2, 30)]
    answers: list[Answer] = rig.finish(*(sequence for sequence, _, _ in asked))
    rig.close()
    assert alone > 0 or name == "ngram"
    assert drafted(first) > crowded
    for (_, which, tokens), answer in zip(asked, answers, strict=True):
        assert_greedy(seven, ASKED[which], answer.tokens, tokens)
    assert max(a.stats.accepted_tokens for a in answers if a.stats is not None) > 0


def test_the_batch_says_how_much_is_drafted(seven: Bundle) -> None:
    """The schedule counts every sequence that decodes in the step."""
    rig = Rig(seven, [scheduled("draft_verify", **SCHEDULE), "naive"], max_batch=ROWS)
    first = rig.submit("draft_verify", ASKED[1], max_tokens=120)
    rig.round()
    seen = []
    for others in range(4):
        before = drafted(first)
        rig.round()
        rig.round()
        seen.append((drafted(first) - before) / 2)
        other = rig.submit("naive", ASKED[others], max_tokens=60)
        while not other.output_tokens:
            rig.round()
    rig.close()
    assert seen == [3, 1, 1, 0]
