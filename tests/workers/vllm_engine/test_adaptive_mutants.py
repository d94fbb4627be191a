"""Wrong rules of the adaptive method in vLLM's engine: for each a test of test_adaptive_rows.py
fails."""

from collections.abc import Callable

import pytest
import test_adaptive_rows as rows
from mutants import mutated

from workers.vllm_engine.drafting import adaptive

MUTANTS: dict[str, tuple[Callable[[], None], str, str]] = {
    "one scope for all": (
        rows.test_an_answer_serves_later_ones_of_its_scope,
        "_Sequence(name, asked, scope, ",
        '_Sequence(name, asked, "", ',
    ),
    "other methods' answers are lost": (
        rows.test_an_answer_of_another_method_serves_later_ones,
        "other.follow(step, row)",
        "pass",
    ),
    "who has ended stays": (
        rows.test_what_has_ended_is_forgotten,
        "self._end(known.pop(request))",
        "self._end(known[request])",
    ),
    "the whole draft is verified": (
        rows.test_of_each_sequences_draft_as_much_is_verified_as_pays,
        "drafts[row][: self.drafted[row]]",
        "drafts[row]",
    ),
    "drafting counts twice": (
        rows.test_a_step_is_all_that_is_no_learned_draft,
        "now - self._began - self._drafting",
        "now - self._began",
    ),
    "every drafter for itself": (
        rows.test_what_one_drafter_shows_of_a_text_others_hear,
        "self._controller.learn(one.id, new, drafted if draft is None else 0, draft)",
        "self._controller.learn(one.id, new, drafted if draft is None else 0)",
    ),
    "reading up costs nothing": (
        lambda: rows.test_a_drafter_that_has_much_to_read_is_asked_for_later(4000, "medusa"),
        "self._missing(name, names)",
        "[0 for _ in names]",
    ),
    "every draft is a look-up's in the statistics": (
        rows.test_who_drafted_each_step_is_told_once_the_request_has_ended,
        "self._methods[one.used] if one.used else one.author",
        "LOOK_UPS",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_rows(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    check, old, new = MUTANTS[name]
    made = mutated(monkeypatch, adaptive, old, new)
    monkeypatch.setattr(rows, "Adaptive", made.Adaptive)
    with pytest.raises(AssertionError):
        check()
