"""A profile's folder while it grows: lines are added as they are measured, and a second run
goes on where the first one stopped."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ops.common.boundary import InputError
from ops.common.decoding import EncodedPrompt
from ops.common.prompts import read_ids
from ops.common.settings import Setup, describe_machine, measured_under
from router.fit.profile import Profile, ProfileError, ProfileMeta, ProfileRow, StepRow
from router.fit.profile import Prompt as ProfilePrompt
from schemas.json_files import read_record
from workers.bundle import Bundle

# What makes two runs' seconds comparable; the rest of the meta may differ from run to run.
SAME_IN_EVERY_RUN = ("measured_under", "methods", "settings_hashes", "max_tokens", "concurrency")


class ProfileStore:
    """Appends to `profile.json`, `prompts.jsonl`, `rows.jsonl` and `steps.jsonl` of one folder."""

    def __init__(self, folder: Path, meta: ProfileMeta) -> None:
        """Raises InputError where the folder holds a profile taken under other settings."""
        self._folder = folder
        if (folder / "profile.json").is_file():
            refuse_other_settings(folder / "profile.json", meta)
            for name in ("prompts.jsonl", "rows.jsonl", "steps.jsonl"):
                drop_unfinished_line(folder / name)
        else:
            Profile(meta=meta, prompts=(), rows=()).save(folder)
        self._profile = Profile.load(folder)
        self._known = {prompt.id for prompt in self._profile.prompts}

    def answered(self, temperature: float) -> set[str]:
        """Ids of the prompts that every method has answered at this temperature."""
        seen: dict[str, set[str]] = {}
        for row in self._profile.rows:
            if row.temperature == temperature:
                seen.setdefault(row.prompt_id, set()).add(row.method)
        wanted = set(self._profile.meta.methods)
        return {prompt_id for prompt_id, methods in seen.items() if methods == wanted}

    def add_answers(self, item: EncodedPrompt, rows: Sequence[ProfileRow]) -> None:
        """All methods' answers to one prompt, in one write."""
        asked = item.prompt
        if asked.id not in self._known:
            prompt = ProfilePrompt(id=asked.id, domain=asked.domain, text=asked.text)
            self._append("prompts.jsonl", [prompt])
            self._known.add(asked.id)
        self._append("rows.jsonl", rows)

    def has_step(self, method: str, batch: int, context: int) -> bool:
        """Whether this cell of the step-time grid was measured before this run."""
        wanted = method, batch, context
        return any((row.method, row.batch, row.context) == wanted for row in self._profile.steps)

    def add_step(self, step: StepRow) -> None:
        """A cell of the step-time grid."""
        self._append("steps.jsonl", [step])

    def _append(self, name: str, lines: Iterable[BaseModel]) -> None:
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.write("".join(line.model_dump_json() + "\n" for line in lines))


def meta_of(setup: Setup, bundle: Bundle, max_tokens: int, **more: Any) -> ProfileMeta:
    """Return what a profile or a trace measures, and under which conditions. more: other fields."""
    specs = setup.methods
    return ProfileMeta(
        measured_under=measured_under(setup, bundle),
        methods=tuple(spec.name for spec in specs),
        settings_hashes={spec.name: spec.settings_hash() for spec in specs},
        lossless={spec.name: spec.lossless for spec in specs},
        max_tokens=max_tokens,
        provenance=describe_machine(),
        **more,
    )


def refuse_other_settings(file: Path, meta: ProfileMeta) -> None:
    present = read_record(file, ProfileMeta)
    for name in SAME_IN_EVERY_RUN:
        before, now = getattr(present, name), getattr(meta, name)
        if before != now:
            raise InputError(
                f"{file}: {name} was {before} and is {now} now; take another --out, or the same "
                "settings"
            )


def drop_unfinished_line(file: Path) -> None:
    """An interrupted run may leave half a line, which the next one measures again."""
    body = file.read_bytes()
    whole = body[: body.rfind(b"\n") + 1]
    if whole != body:
        file.write_bytes(whole)


def profiled(folder: Path, ids: Path | None) -> Profile:
    """Load a profile, or its prompts that a file of ids names.

    Raises ProfileError, and InputError naming the file of ids.
    """
    profile = Profile.load(folder)
    if ids is None:
        return profile
    try:
        return profile.only(read_ids(ids))
    except ProfileError as error:
        raise InputError(f"--profile-ids: {ids}: {error}") from error
