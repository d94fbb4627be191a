"""Make heads of each kind: new ones, and ones in the shape of a stored head."""

from torch import Tensor

from training.heads.eagle import Eagle
from training.heads.eagle3 import Eagle3
from training.heads.head import Head
from training.heads.medusa import Medusa
from training.heads.stored import StoredHead
from training.heads.teacher import Teacher


def new_head(kind: str, teacher: Teacher, words: Tensor | None, positions: int) -> Head:
    """Make an untrained head. words: int64 [k], the tokens that it drafts; None for all."""
    if kind == "eagle":
        return Eagle(teacher, words)
    if kind == "eagle3":
        return Eagle3(teacher, words)
    return Medusa(teacher, words, positions)


def continued_head(stored: StoredHead, teacher: Teacher) -> Head:
    """Make a head in the shape of a stored one, whose weights `Head.load` reads.

    Raises ValueError if it is the head of another target or one that training does not compute.
    """
    stored.refuse_other_target(teacher)
    words = stored.vocabulary
    if stored.kind == "eagle3":
        return Eagle3(teacher, words, stored.captures(teacher.layers))
    if stored.kind == "medusa":
        return Medusa(teacher, words, stored.positions, stored.depth)
    return Eagle(teacher, words)


def load_head(stored: StoredHead, teacher: Teacher) -> Head:
    """Load a stored head on the teacher's device. Raises as `continued_head` and `Head.load` do."""
    head = continued_head(stored, teacher)
    head.load(stored)
    return head.to(teacher.device).eval()
