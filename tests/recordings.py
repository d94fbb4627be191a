"""Small profiles made on the spot: known tokens, known seconds."""

from collections.abc import Sequence
from pathlib import Path

from schemas import MeasuredUnder
from schemas.profile import ProfileMeta, ProfileRow, Prompt, RecordedTokens, StepRow
from workers.methods import get_method

STEP = {"naive": 0.010, "ngram": 0.012}
PREFILL = 0.02


def step_seconds(method: str, batch: float, context: float) -> float:
    """What the made-up machine takes: linear in both, as the replay reads it back."""
    return STEP[method] * (0.5 + 0.5 * batch) * (1.0 + context / 1000.0)


def write_profile(
    folder: Path,
    answers: dict[str, Sequence[Sequence[int]]],
    *,
    bundle: str,
    finish_reason: str = "length",
    batches: Sequence[int] = (1, 2, 4),
) -> Path:
    """A profile with one prompt per method's answer (tokens by step), whose decode seconds are
    the grid's. The prompt of method number i is `prompt_of(i)`."""
    folder.mkdir()
    prompts, rows = [], []
    for i, (name, steps) in enumerate(answers.items()):
        ids = prompt_of(i)
        prompts.append(Prompt(id=f"p{i}", domain="d", text=f"prompt {i}", token_ids=ids))
        rows.append(_row(f"p{i}", name.split("/")[0], ids, steps, finish_reason))
    methods = tuple(STEP)
    grid = [
        StepRow(method=m, batch=b, context=c, seconds=step_seconds(m, b, c), count=10)
        for m in methods
        for b in batches
        for c in (1, 1000)
    ]
    meta = profile_meta(methods, bundle, max_tokens=128)
    (folder / "profile.json").write_text(meta.model_dump_json())
    for file, lines in {"prompts": prompts, "rows": rows, "steps": grid}.items():
        body = "".join(line.model_dump_json() + "\n" for line in lines)
        (folder / f"{file}.jsonl").write_text(body)
    return folder


def profile_meta(methods: tuple[str, ...], bundle: str, max_tokens: int) -> ProfileMeta:
    """Describe a profile of lossless methods on an imaginary machine."""
    return ProfileMeta(
        measured_under=MeasuredUnder(
            machine="made up", device="cpu", dtype="float32", threads=1, bundle=bundle
        ),
        methods=methods,
        settings_hashes={name: get_method(name).settings_hash() for name in methods},
        lossless=dict.fromkeys(methods, True),
        max_tokens=max_tokens,
    )


def prompt_of(i: int) -> tuple[int, ...]:
    """Ten token ids."""
    return (*range(1, 10), 10 + i)


def decode_seconds(method: str, steps: Sequence[Sequence[int]], batch: float = 1) -> float:
    """Seconds of an answer's decode steps at one batch size, after a prompt of ten tokens."""
    context, seconds = 10 + len(steps[0]), 0.0
    for tokens in steps[1:]:
        seconds += step_seconds(method, batch, context)
        context += len(tokens)
    return seconds


def _row(
    prompt_id: str,
    method: str,
    ids: Sequence[int],
    steps: Sequence[Sequence[int]],
    finish_reason: str,
) -> ProfileRow:
    tokens = [t for step in steps for t in step]
    drafted = [i + 1 < len(step) for step in steps for i in range(len(step))]
    seconds = decode_seconds(method, steps)
    return ProfileRow(
        prompt_id=prompt_id,
        method=method,
        prompt_tokens=len(ids),
        output_tokens=len(tokens),
        target_steps=len(steps),
        seconds=PREFILL + seconds,
        prefill_seconds=PREFILL,
        decode_seconds=seconds,
        recorded=RecordedTokens(
            token_ids=tuple(tokens), drafted=tuple(drafted), finish_reason=finish_reason
        ),
    )
