"""The loss of heads: the distance of their distributions from the target's, by position."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.heads.head import Head
from training.trainer import Loss

MOST = 0.7
"""The usual share of a batch's slots whose target logits are needed: answers, and a few more."""


def head_loss(head: Head, lm_head: Tensor, decay: float) -> Loss:
    """Return the loss over drafted positions, of which position j counts decay ** j.

    It is the cross-entropy in nats of the head's distribution under the target's, and for EAGLE
    also the smooth-L1 distance from the target's features. It takes the tensors of
    `batch_tensors`. lm_head: [vocab, hidden] of the target.
    """

    def loss(
        labels: Tensor, documents: Tensor, states: Tensor, slots: Tensor, weights: Tensor
    ) -> Tensor:
        count = weights.shape[1]
        final = states[..., -1, :].flatten(0, 1)
        places = torch.stack([ahead(slots, j, len(final)) for j in range(count)])
        with torch.no_grad():
            asked, row_of = asked_places(places, len(final))
            wanted, scale = target_logits(head, lm_head, final[asked])
        outputs = head.drafts(labels, states, documents, count)
        total = torch.zeros((), device=final.device)
        for j, output in enumerate(outputs):
            rows, place, own = output.flatten(0, 1)[slots], places[j], row_of[j]
            with torch.no_grad():
                p = (wanted[own].float() - scale[own]).exp()
            each = -(p * head.logits(rows).float().log_softmax(-1)).sum(-1)
            if head.regression:
                apart = F.smooth_l1_loss(rows.float(), final[place].float(), reduction="none")
                each = each + head.regression * apart.mean(-1)
            weight = weights[:, j]
            total = total + decay**j * (each * weight).sum() / weight.sum().clamp_min(1.0)
        return total / sum(decay**j for j in range(count))

    return loss


def target_logits(head: Head, lm_head: Tensor, final: Tensor) -> tuple[Tensor, Tensor]:
    """Return the target's logits [n, k] over the head's vocabulary, and the log-sum-exp of all.

    final: [n, hidden]. The log-sum-exp is float32 [n, 1].
    """
    everything = F.linear(final, lm_head)
    best = everything.amax(-1, keepdim=True)
    # In the logits' own dtype: rounding hardly changes the largest exponentials.
    sums = (everything - best).exp_().sum(-1, keepdim=True, dtype=torch.float32)
    scale = sums.log() + best.float()
    if head.vocabulary is None:
        return everything, scale
    return everything[:, head.vocabulary], scale


@torch.compiler.disable  # type: ignore[untyped-decorator]
def asked_places(places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the distinct places among [positions, k] of `count`, and each place's index in them.

    The LM head over all places, prompts included, would take much of a step. Other places pad the
    result to MOST of `count`, or to all, since each shape is compiled once.
    """
    asked = torch.zeros(count, dtype=torch.bool, device=places.device)
    asked[places] = True
    size = int(MOST * count)
    size = size if int(asked.sum()) <= size else count
    order = asked.to(torch.int8).argsort(descending=True, stable=True)[:size]
    row_of = torch.zeros(count, dtype=torch.int64, device=places.device)
    row_of[order] = torch.arange(size, device=places.device)
    return order, row_of[places]


def ahead(slots: Tensor, position: int, count: int) -> Tensor:
    """Return flat places of the target states that give the truth of a drafted position."""
    return (slots + 1 + position).clamp_max(count - 1)


@torch.no_grad()
def hits(
    head: Head, lm_head: Tensor, tensors: Sequence[Tensor], best: int = 5
) -> tuple[Tensor, Tensor]:
    """Return the rank of the target's best token in the head's logits, and the cross-entropy.

    Both are [n, positions], for every slot and position. The rank is int64, `best` for tokens that
    are not among the first `best`.
    """
    labels, documents, states, slots, weights = tensors
    final = states[..., -1, :].flatten(0, 1)
    wanted, scale = target_logits(head, lm_head, final)
    favourite = F.linear(final, lm_head).argmax(-1)
    ranks, entropies = [], []
    for j, output in enumerate(head.drafts(labels, states, documents, weights.shape[1])):
        place = ahead(slots, j, len(final))
        logits = head.logits(output.flatten(0, 1)[slots]).float()
        top = logits.topk(best).indices
        ids = top if head.vocabulary is None else head.vocabulary[top]
        same = ids == favourite[place, None]
        ranks.append(torch.where(same.any(-1), same.byte().argmax(-1), best))
        p = (wanted[place].float() - scale[place]).exp()
        entropies.append(-(p * logits.log_softmax(-1)).sum(-1))
    return torch.stack(ranks, 1), torch.stack(entropies, 1)
