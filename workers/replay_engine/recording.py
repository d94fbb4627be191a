"""Recorded answers of a profile, by method, temperature and prompt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas import DecodeRequest, FinishReason, SamplingParams
from schemas.json_files import read_record, records
from schemas.profile import ProfileMeta, ProfileRow, Prompt, RecordedTokens, StepRow
from schemas.text_files import FileError
from workers.engine import EngineRefusedError
from workers.replay_engine.step_times import StepTimes

REPLAYABLE = frozenset({"temperature", "max_tokens", "seed"})
"""The sampling parameters a recorded answer can follow."""


class RecordingError(ValueError):
    """A profile that cannot be replayed; the message names the file or field and the fix."""


@dataclass(frozen=True)
class RecordedAnswer:
    """One answer of one method.

    steps: the tokens of each target step, the prefill's first. prefill_seconds: request to first
    token, alone. pace: the recorded seconds of its decode steps over those of the step-time grid
    at batch 1, so that an answer that has a replica to itself takes what it took.
    """

    prompt_tokens: int
    prefill_seconds: float
    steps: tuple[tuple[int, ...], ...]
    finish_reason: FinishReason
    pace: float


Key = tuple[str, float, tuple[int, ...]]
"""Method, temperature, the prompt's token ids."""


@dataclass(frozen=True)
class Recording:
    """A profile's answers and step times, which any number of engines share."""

    meta: ProfileMeta
    answers: dict[Key, RecordedAnswer]
    step_times: StepTimes

    @classmethod
    def load(cls, folder: Path, slowdown: float = 1.0) -> Recording:
        """Load a profile, every second times `slowdown`.

        Raises RecordingError where a file is absent, malformed, or without tokens.
        """
        meta = _meta(folder)
        if meta.concurrency > 1:
            raise RecordingError(
                f"{folder / 'profile.json'}: answers were decoded {meta.concurrency} at a time: "
                "replay needs what each took alone; profile with --concurrency 1"
            )
        known = records(folder / "prompts.jsonl", Prompt, RecordingError, key="id")
        prompts = {prompt.id: prompt for prompt in known}
        step_times = StepTimes(
            row.model_copy(update={"seconds": row.seconds * slowdown})
            for row in records(folder / "steps.jsonl", StepRow, RecordingError)
        )
        missing = set(meta.methods) - step_times.methods
        if missing:
            raise RecordingError(
                f"{folder / 'steps.jsonl'}: no step times of {', '.join(sorted(missing))}: "
                "let `specadapt profile` finish"
            )
        answers: dict[Key, RecordedAnswer] = {}
        for row in records(folder / "rows.jsonl", ProfileRow, RecordingError):
            prompt = prompts.get(row.prompt_id)
            if prompt is None or not prompt.token_ids or row.recorded is None:
                raise RecordingError(
                    f"{folder}: no tokens are kept of {row.prompt_id} under {row.method}: "
                    "profile again into an empty folder"
                )
            # the first of several repeats answers for all of them
            key = (row.method, row.temperature, prompt.token_ids)
            answers.setdefault(key, _answer(row, row.recorded, step_times, slowdown))
        return cls(meta, answers, step_times)

    def find(self, request: DecodeRequest) -> RecordedAnswer:
        """Return the answer to a request. Raises EngineRefusedError where none was recorded."""
        if request.answered_token_ids:
            raise EngineRefusedError(
                "answered_token_ids: replay cannot continue a begun answer: leave it out"
            )
        if request.max_draft_tokens is not None:
            raise EngineRefusedError(
                "speculation: replay gives back recorded answers with their drafts: leave it out"
            )
        _refuse_unrecorded_sampling(request.sampling)
        temperature = request.sampling.temperature
        answer = self.answers.get((request.method, temperature, request.prompt_token_ids))
        if answer is None:
            raise EngineRefusedError(
                f"prompt: {request.method} at temperature {temperature} has no recorded answer to "
                "it: replay knows the prompts of its profile, token for token, and no others"
            )
        tokens = sum(map(len, answer.steps))
        limited = not request.open_ended
        if limited and answer.finish_reason == "length" and request.sampling.max_tokens > tokens:
            raise EngineRefusedError(
                f"max_tokens: the recorded answer was cut off after {tokens} tokens: ask for at "
                f"most {tokens}"
            )
        return answer


def _refuse_unrecorded_sampling(sampling: SamplingParams) -> None:
    default = SamplingParams()
    for name in SamplingParams.model_fields:
        if name not in REPLAYABLE and getattr(sampling, name) != getattr(default, name):
            raise EngineRefusedError(
                f"{name}: replay gives back recorded answers and cannot follow it: leave it out"
            )


def _answer(
    row: ProfileRow, recorded: RecordedTokens, step_times: StepTimes, slowdown: float
) -> RecordedAnswer:
    steps = recorded.by_step()
    on_grid = step_times.decode_seconds(row.method, 1, row.prompt_tokens, steps)
    return RecordedAnswer(
        prompt_tokens=row.prompt_tokens,
        prefill_seconds=row.prefill_seconds * slowdown,
        steps=steps,
        finish_reason=recorded.finish_reason,
        pace=row.decode_seconds * slowdown / on_grid if on_grid else 1.0,
    )


def _meta(folder: Path) -> ProfileMeta:
    file = folder / "profile.json"
    if not file.is_file():
        raise RecordingError(f"{folder} is not a profile: profile.json is missing")
    try:
        return read_record(file, ProfileMeta)
    except FileError as error:
        raise RecordingError(str(error)) from error
