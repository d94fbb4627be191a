"""Heads' folders and origins for tests of the version store."""

from pathlib import Path
from typing import Any

from deployments.head_training.versions import VersionStore
from schemas import DecodeStats, FeedbackConfig, HeadOrigin, HeadPart, SampleSpan, Verdict

TARGET = "0123456789ab"


def store(uri: str, cache: Path | None = None, target: str = TARGET) -> VersionStore:
    return VersionStore(FeedbackConfig(state_uri=uri), "tiny", target, cache)


def head(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def origin(part: HeadPart = "eagle3", parent: int = 0) -> HeadOrigin:
    return HeadOrigin(
        part=part,
        parent=parent,
        created=1.0,
        samples=SampleSpan(answers=3, tokens=90, first=0.25, last=0.75),
        verdict=Verdict(better=True),
    )


def drafted_answer(tokens: int, steps: int, **more: Any) -> DecodeStats:
    """Return the statistics of an answer that version 2 of a head drafted, with other fields."""
    fields = {"head_versions": {"eagle3": 2}, "finish_reason": "stop"} | more
    return DecodeStats(
        request_id="a",
        method="eagle3",
        temperature=0.0,
        prompt_tokens=5,
        output_tokens=tokens,
        context_length=5 + tokens,
        target_steps=steps,
        **fields,
    )
