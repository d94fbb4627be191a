"""Choosing among the tokens that a drafter knows, as among all of the target's."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from workers.torch_engine.models.draft_logits import DraftLogits

VOCAB = 11


@st.composite
def spoken(draw: st.DrawFn) -> tuple[DraftLogits, Tensor]:
    """Logits of a few tokens, and the same over the whole vocabulary."""
    rows = draw(st.integers(1, 4))
    ids = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, unique=True))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    values = torch.randn(rows, len(ids), generator=seed)
    whole = torch.full((rows, VOCAB), -torch.inf)
    whole[:, ids] = values
    return DraftLogits(values, torch.tensor(ids), VOCAB), whole


@settings(deadline=None)
@given(spoken(), st.data())
def test_as_over_the_whole_vocabulary(both, data):
    few, whole = both
    all_of_them = DraftLogits.of_all(whole)
    assert torch.equal(few.whole(), whole)
    assert torch.equal(all_of_them.whole(), whole)
    assert few.favourites() == all_of_them.favourites() == whole.argmax(-1).tolist()
    k = data.draw(st.integers(1, few.values.shape[-1]))
    assert few.best_tokens(k) == all_of_them.best_tokens(k) == whole.topk(k).indices.tolist()
    scores, tokens = few.best(k)
    assert tokens == few.best_tokens(k)
    expected = whole.log_softmax(-1).topk(k).values
    torch.testing.assert_close(torch.tensor(scores), expected)
    picked = data.draw(st.lists(st.integers(0, len(few) - 1), min_size=1))
    assert torch.equal(few.rows(picked).whole(), whole[picked])
    assert torch.equal(torch.cat([row.whole() for row in few.unbind()]), whole)


def test_more_than_it_knows_are_tokens_that_it_never_says() -> None:
    few = DraftLogits(torch.tensor([[1.0, 2.0]]), torch.tensor([4, 7]), VOCAB)
    [tokens] = few.best_tokens(5)
    assert tokens[:2] == [7, 4]
    assert len(set(tokens)) == 5
    [scores], _ = few.best(3)
    assert scores[2] == -torch.inf
