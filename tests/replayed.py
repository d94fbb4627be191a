"""A small recording of a service, made on the spot: two kinds of prompts, known speeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recordings import PREFILL, profile_meta
from served import METHODS, configured, encoder_folder

from router import cluster
from router.drift import Reference
from router.embed import Encoder
from router.fit.assign import build_table
from router.fit.profile import Profile
from router.table import save_table
from schemas import AppConfig
from schemas.profile import ProfileRow, Prompt, RecordedTokens, StepRow
from workers.bundle import Bundle
from workers.chat_template import encode_chat

KINDS = {
    "code": "Write a Python function that sorts a list of {} numbers.",
    "weather": "Tell me about the weather in the mountains after {} days of rain.",
    "cooking": "How long do I have to boil {} potatoes for a soup with leek?",
}
"""A prompt of each kind; the table of a service may have been fitted without some of them."""

PER_KIND = 24
TOKENS = 25
STEP = {"naive": 0.010, "draft_verify": 0.012, "ngram": 0.011}
TOKENS_PER_STEP = {
    "code": {"naive": 1, "draft_verify": 3, "ngram": 2},
    "weather": {"naive": 1, "draft_verify": 3, "ngram": 2},
    "cooking": {"naive": 1, "draft_verify": 2, "ngram": 4},
}
"""draft_verify is the best, except at cooking; while it is half as fast, ngram is."""


def write_recording(folder: Path, bundle: Bundle) -> Profile:
    """PER_KIND prompts of every kind under every method, with TOKENS tokens each."""
    tokenizer = bundle.tokenizer()
    prompts, rows = [], []
    for kind, text in KINDS.items():
        for i in range(PER_KIND):
            turn = [{"role": "user", "content": text.format(i + 2)}]
            ids = tuple(encode_chat(tokenizer, turn, add_generation_prompt=True))
            prompt_id = f"{kind}-{i}"
            prompts.append(
                Prompt(id=prompt_id, domain=kind, text=turn[0]["content"], token_ids=ids)
            )
            rows += [_row(prompt_id, m, len(ids), TOKENS_PER_STEP[kind][m]) for m in METHODS]
    grid = [
        StepRow(method=m, batch=b, context=c, seconds=STEP[m] * (0.7 + 0.3 * b), count=100)
        for m in METHODS
        for b in (1, 2, 4, 8)
        for c in (32, 256)
    ]
    meta = profile_meta(METHODS, f"{bundle.name}@{bundle.content_hash}", TOKENS)
    profile = Profile(meta, tuple(prompts), tuple(rows), tuple(grid))
    profile.save(folder)
    return profile


def replay_config(
    folder: Path, bundle: Bundle, kinds: Sequence[str], settings: Mapping[str, Any]
) -> AppConfig:
    """A service that replays such a recording, its table fitted on prompts of `kinds`."""
    recording = write_recording(folder / "recording", bundle)
    encoder = Encoder(encoder_folder(folder / "encoder"))
    prompts = tuple(p for p in recording.prompts if p.domain in kinds)
    kept = {p.id for p in prompts}
    rows = tuple(row for row in recording.rows if row.prompt_id in kept)
    vectors = encoder.embed([p.text for p in prompts])
    centroids = cluster.fit(vectors, len(kinds), seed=0)
    measured = Profile(recording.meta, prompts, rows, recording.steps)
    table = build_table(measured, vectors, centroids, encoder.info)
    labels = cluster.assign(centroids, vectors)
    distances = Reference.of_fit(centroids, vectors, labels).state()
    provenance = {**table.provenance, "distances": distances}
    save_table(table.model_copy(update={"provenance": provenance}), folder / "routing")
    body: dict[str, Any] = {
        "bundle": bundle.path,
        "methods": [{"name": name, "num_cpus": 0} for name in METHODS],
        "engine": {"replay": folder / "recording", "max_context": 512},
        "router": {
            "routing": folder / "routing",
            "encoder": encoder_folder(folder / "encoder"),
        },
        "feedback": {"state_uri": str(folder / "state")},
    }
    return configured(body, settings)


def _row(prompt_id: str, method: str, prompt_tokens: int, per_step: int) -> ProfileRow:
    # the prefill's token, then steps of so many
    flags = [False] + [i % per_step != per_step - 1 for i in range(TOKENS - 1)]
    steps = sum(not flag for flag in flags)
    decode = STEP[method] * (steps - 1)
    return ProfileRow(
        prompt_id=prompt_id,
        method=method,
        prompt_tokens=prompt_tokens,
        output_tokens=TOKENS,
        target_steps=steps,
        seconds=PREFILL + decode,
        prefill_seconds=PREFILL,
        decode_seconds=decode,
        recorded=RecordedTokens(
            token_ids=tuple(range(300, 300 + TOKENS)), drafted=tuple(flags), finish_reason="length"
        ),
    )
