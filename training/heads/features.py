"""Keep the target's hidden states of packed rows on disk as they are computed."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from training.heads.packing import HeadBatch, PackedRows
from training.heads.teacher import Teacher
from training.precision import arithmetic


class FeatureCache:
    """The states of the first bins of `packed`, as many as fit into `gigabytes`.

    `folder` holds states.bin, bfloat16 [bins, length, captures + 1, hidden]; filled.bin, a byte per
    bin; and manifest.json, which identifies the target and the text. Later passes, resumed runs and
    heads that read some of the same states use them. Bins beyond are computed at every pass. A
    cache of another target or text is overwritten. Raises OSError if the disk has no room for it.
    """

    def __init__(
        self,
        teacher: Teacher,
        captures: Sequence[int],
        packed: PackedRows,
        folder: Path,
        gigabytes: float,
    ) -> None:
        self.teacher = teacher
        self.captures = wanted = tuple(captures)
        per_bin = (packed.length, len(wanted) + 1, teacher.config.hidden_size)
        self.count = min(len(packed), int(gigabytes * 1e9 / (2 * np.prod(per_bin))))
        if self.count == 0:
            self.columns = list(range(len(wanted) + 1))
            return
        folder.mkdir(parents=True, exist_ok=True)
        file, content = folder / "manifest.json", _content(teacher, packed)
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        mode: Literal["r+", "w+"] = "w+"
        if known.get("content") == content and set(wanted) <= set(known["captures"]):
            mode, self.captures, self.count = "r+", tuple(known["captures"]), known["shape"][0]
        self.columns = [*(self.captures.index(layer) for layer in wanted), len(self.captures)]
        shape = (self.count, packed.length, len(self.captures) + 1, teacher.config.hidden_size)
        # numpy has no bfloat16: the two bytes are kept as int16
        self.states = np.memmap(folder / "states.bin", np.int16, mode, shape=shape)
        if mode == "w+" and hasattr(os, "posix_fallocate"):
            # Writing a mapped file on a full disk would end the process without a word.
            with (folder / "states.bin").open("r+b") as states:
                os.posix_fallocate(states.fileno(), 0, self.states.nbytes)
        self.filled = np.memmap(folder / "filled.bin", np.uint8, mode, shape=(self.count,))
        manifest = {"shape": shape, "captures": self.captures, "content": content}
        file.write_text(json.dumps(manifest), encoding="utf-8")

    def of(self, batch: HeadBatch) -> Tensor:
        """Return the wanted states of a batch [rows, length, captures + 1, hidden].

        They are on the target's device, in the precision of `arithmetic`.
        """
        device, held = self.teacher.device, batch.bins < self.count
        if held.all() and self.filled[batch.bins].all():
            kept = torch.from_numpy(self.states[batch.bins][:, :, self.columns])
            return kept.view(torch.bfloat16).to(device, arithmetic(device))
        ids, documents = (torch.from_numpy(a).to(device) for a in (batch.inputs, batch.documents))
        states = self.teacher.states(ids, documents, self.captures)
        if held.any():
            bins = batch.bins[held]
            self.states[bins] = states.cpu().view(torch.int16).numpy()[held]
            self.filled[bins] = 1
        return states[:, :, self.columns].to(arithmetic(device))


def _content(teacher: Teacher, packed: PackedRows) -> str:
    """Return a hash of the target's weights and of the packed text."""
    digest = hashlib.sha256()
    for weight in teacher.weights.values():
        digest.update(weight.detach().cpu().float().contiguous().numpy().tobytes())
    digest.update(packed.rows.tokens.tobytes())
    digest.update(packed.rows.offsets.tobytes())
    for members in packed.bins:
        digest.update(members.tobytes() + b"|")
    return digest.hexdigest()
