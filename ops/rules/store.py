"""Recorded drafts as one file: they outlive the costs that they are judged by."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.cli.boundary import InputError
from ops.rules.exits import Agreement
from ops.rules.replay import Recorded
from ops.rules.wide_tree import WideTree

COLUMNS = {
    "parents": np.int16,
    "ranks": np.int16,
    "depths": np.int16,
    "values": np.float32,
    "entropies": np.float32,
    "came": np.bool_,
}


@dataclass(frozen=True)
class Answered:
    """A prompt's plain answer, what the drafter would have drafted along it, and by exit where the
    target's first layers agree with it."""

    answer: Sequence[int]
    drafts: Recorded
    agrees: Mapping[int, Agreement]


def save(file: Path, answers: Sequence[Answered], of: Mapping[str, Any]) -> None:
    """of: what `load` compares, so that no file is taken for another's."""
    trees = [tree for one in answers for tree in one.drafts.trees]
    columns = {
        name: np.asarray([value for tree in trees for value in getattr(tree, name)], kind)
        for name, kind in COLUMNS.items()
    }
    named = [
        {"id": one.drafts.prompt_id, "domain": one.drafts.domain, "answer": list(one.answer)}
        for one in answers
    ]
    exits = {
        f"exit_{after}": np.concatenate([one.agrees[after] for one in answers])
        for after in (answers[0].agrees if answers else ())
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as opened:
        np.savez_compressed(
            opened,
            about=np.asarray(json.dumps({"of": of, "answers": named})),
            nodes=np.asarray([len(tree) for tree in trees], np.int64),
            **columns,
            **exits,
        )


def load(file: Path, of: Mapping[str, Any]) -> list[Answered]:
    """What was saved. Raises InputError where it is of something else."""
    try:
        with np.load(file) as held:
            found = {name: held[name] for name in held.files}
        about = json.loads(str(found["about"]))
    except (ValueError, KeyError, OSError) as error:
        raise InputError(f"--records: {file} holds no recorded drafts; name a new file") from error
    for name, value in of.items():
        if about["of"].get(name) != value:
            raise InputError(f"--records: {file} is of another {name}; name a new file")
    columns = [found[name].tolist() for name in COLUMNS]
    trees = _trees(found["nodes"].tolist(), columns)
    exits = {int(name[5:]): found[name] for name in found if name.startswith("exit_")}
    answers, start = list[Answered](), 0
    for one in about["answers"]:
        positions = len(one["answer"]) - 1
        drafts = Recorded(one["id"], one["domain"], [next(trees) for _ in range(positions)])
        agrees = {after: flags[start : start + positions] for after, flags in exits.items()}
        answers.append(Answered(one["answer"], drafts, agrees))
        start += positions
    return answers


def _trees(nodes: Sequence[int], columns: Sequence[Sequence[Any]]) -> Iterator[WideTree]:
    start = 0
    for count in nodes:
        yield WideTree(*(column[start : start + count] for column in columns))
        start += count
