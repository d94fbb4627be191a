"""Recorded drafts as files, one an answer: they outlive the costs that they are judged by."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.cli.boundary import InputError
from ops.rules.exits import Agreement
from ops.rules.replay import Recorded
from ops.rules.wide_tree import WideTree

COLUMNS = {"parents": np.int16, "ranks": np.int16, "depths": np.int16, "values": np.float64}
COLUMNS |= {"entropies": np.float64, "came": np.bool_}


@dataclass(frozen=True)
class Answered:
    """A prompt's plain answer, what the drafter would have drafted along it, and by exit where the
    target's first layers agree with it."""

    answer: Sequence[int]
    drafts: Recorded
    agrees: Mapping[int, Agreement]


def save(file: Path, found: Answered, of: Mapping[str, Any]) -> None:
    """of: what `load` compares, so that no file is taken for another's."""
    trees = found.drafts.trees
    columns = {
        name: np.asarray([value for tree in trees for value in getattr(tree, name)], kind)
        for name, kind in COLUMNS.items()
    }
    sizes = {
        f"{name}_sizes": np.asarray([len(getattr(tree, name)) for tree in trees], np.int64)
        for name in COLUMNS
    }
    about = {"of": of, "id": found.drafts.prompt_id, "domain": found.drafts.domain}
    about["answer"] = list(found.answer)
    exits = {f"exit_{after}": flags for after, flags in found.agrees.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("wb") as opened:
        np.savez_compressed(
            opened,
            allow_pickle=False,
            about=np.asarray(json.dumps(about)),
            **columns,
            **sizes,
            **exits,
        )
    part.replace(file)


def load(file: Path, of: Mapping[str, Any]) -> Answered:
    """What was saved. Raises InputError where it is of something else."""
    try:
        with np.load(file) as held:
            found = {name: held[name] for name in held.files}
        about = json.loads(str(found["about"]))
        columns = [_cut(found[name].tolist(), found[f"{name}_sizes"].tolist()) for name in COLUMNS]
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"--records: {file} holds no recorded drafts; delete it") from error
    for name, value in of.items():
        if about["of"].get(name) != value:
            raise InputError(f"--records: {file} is of another {name}; name a new folder")
    drafts = Recorded(
        about["id"], about["domain"], [WideTree(*one) for one in zip(*columns, strict=True)]
    )
    agrees = {int(name[5:]): found[name] for name in found if name.startswith("exit_")}
    return Answered(about["answer"], drafts, agrees)


def _cut(values: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    ends = np.cumsum(sizes).tolist()
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]
