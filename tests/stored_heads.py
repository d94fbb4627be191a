"""Heads' folders and origins for tests of the version store."""

from pathlib import Path

from deployments.drafters.versions import VersionStore
from schemas import FeedbackConfig, HeadOrigin, HeadPart, SampleSpan, Verdict


def store(uri: str, cache: Path | None = None) -> VersionStore:
    return VersionStore(FeedbackConfig(state_uri=uri), "tiny", cache)


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
