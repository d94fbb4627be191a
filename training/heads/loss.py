"""What heads minimise: the distance of their distributions from the target's, by position."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from training.heads.head import Head
from training.trainer import Loss

MOST = 0.7
"""Answers are about half of the text, and a position or two beyond."""


def head_loss(head: Head, lm_head: Tensor, decay: float) -> Loss:
    """Cross-entropy of the head's distribution under the target's (nats), and for EAGLE the
    smooth-L1 distance from the target's features, over the drafted positions; position j counts
    decay ** j. Takes what `HeadData.tensors` gives; lm_head [vocab, hidden] is the target's."""

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
    """The target's logits [n, k] over the head's vocabulary, and the log of the sum of the
    exponentials of all of them [n, 1] float32; final [n, hidden]."""
    everything = F.linear(final, lm_head)
    best = everything.amax(-1, keepdim=True)
    # in the logits' own dtype: what rounding takes from the largest exponentials is nothing
    sums = (everything - best).exp_().sum(-1, keepdim=True, dtype=torch.float32)
    scale = sums.log() + best.float()
    if head.vocabulary is None:
        return everything, scale
    return everything[:, head.vocabulary], scale


@torch.compiler.disable  # type: ignore[untyped-decorator]
def asked_places(places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The different ones among places [positions, k] of `count`, and where each of them is there.

    Prompts have no places, and the whole LM head over them would be much of a step. Compiled code
    wants few shapes: the first of the others follow up to MOST of `count`, or up to all.
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
    """Flat places of the target states that say what drafted position `position` should be."""
    return (slots + 1 + position).clamp_max(count - 1)


@torch.no_grad()
def hits(
    head: Head, lm_head: Tensor, tensors: Sequence[Tensor], best: int = 5
) -> tuple[Tensor, Tensor]:
    """For every slot and position: the rank at which the head has the target's favourite token,
    int64 [n, positions] (`best` where it is not among its first so many), and the cross-entropy
    [n, positions]."""
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
