"""The folder of a trace: `trace.json` has its settings, `trace.jsonl` a response a line."""

from collections.abc import Sequence
from pathlib import Path

from ops.common.boundary import InputError
from ops.routing_tables.profile_store import drop_unfinished_line, refuse_other_settings
from router.fit.profile import ProfileMeta
from router.fit.speedup import BASELINE
from schemas.base import Schema
from schemas.json_files import records


class TracedAnswer(Schema):
    """A line of `trace.jsonl`.

    prompt, answer: token ids. accepted: by drafting method, the draft tokens accepted at each
    position of the response, from its second token on [answer tokens - 1].
    """

    prompt_id: str
    domain: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    accepted: dict[str, tuple[int, ...]]


def prepare(folder: Path, meta: ProfileMeta) -> set[str]:
    """Make a trace's folder, or continue it. Return the ids of the prompts that it has.

    Raises InputError if it was made under other settings.
    """
    file, answers = folder / "trace.json", folder / "trace.jsonl"
    if file.is_file() and answers.is_file():
        refuse_other_settings(file, meta)
        drop_unfinished_line(answers)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        answers.touch()
        file.write_text(meta.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return {answer.prompt_id for answer in read_traces(folder)}


def read_traces(folder: Path) -> list[TracedAnswer]:
    """Return the responses of a trace. Raises InputError naming the file and line."""
    return [*records(folder / "trace.jsonl", TracedAnswer, InputError, key="prompt_id")]


def steps(accepted: Sequence[int]) -> int:
    """Return the target steps after the prefill: each emits its accepted tokens and one more."""
    position = count = 0
    while position < len(accepted):
        position += accepted[position] + 1
        count += 1
    return count


def mat(answers: Sequence[TracedAnswer], method: str) -> float:
    """Return output tokens per target step, the prefill's included."""
    tokens = sum(len(answer.answer) for answer in answers)
    if method == BASELINE:
        return 1.0
    return tokens / sum(1 + steps(answer.accepted[method]) for answer in answers)
