"""`specadapt drafters`: the heads that a service trains, and the responses that it keeps for it."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, table

if TYPE_CHECKING:
    from deployments.head_training.samples import Samples
    from deployments.head_training.versions import VersionStore
    from schemas import AppConfig, HeadPart, HeadsInForce, HeadVersion


def listing(config: flags.Config = None, json: flags.Json = None) -> None:
    """List the versions of all heads, newest first, and which of them serve.

    With --json, each has its comparison with its parent on held-out responses.

    Example: `specadapt drafters list --config my.yaml`
    """
    _, store, _ = _stores(config)
    heads, versions = store.in_force(), store.all()
    figures = {
        "in_force": heads.model_dump(mode="json"),
        "versions": [version.model_dump(mode="json") for version in versions],
    }
    columns = ["number", "part", "parent", "created", "answers", "gain", "serves"]
    rows = [
        [
            *(version.number, version.part, version.parent, _time(version.created)),
            *(version.samples.answers, _gain(version), _serves(version, heads)),
        ]
        for version in versions
    ]
    title = f"Versions in {store.uri}"
    emit(figures, lambda: [table(title, columns, rows), _training(heads)], json)


def promote(
    number: Annotated[int, typer.Argument(min=1, metavar="NUMBER", help="number of the version")],
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """Make a version the active one, in the place of the present one and of a canary.

    Replicas load it within seconds. Running answers keep the version that they began with.

    Example: `specadapt drafters promote 3 --config my.yaml`
    """
    try:
        _emit(_stores(config, trains=True)[1].promote(number), json)
    except LookupError as error:
        raise InputError(f"NUMBER: {error}") from error


def rollback(
    part: Annotated[
        str, typer.Argument(metavar="PART", help="eagle3, eagle or medusa", show_default=False)
    ],
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """End a head's canary or, if there is none, return from the active version to its parent.

    Example: `specadapt drafters rollback eagle3 --config my.yaml`
    """
    from schemas import HeadPart

    parts = {name: name for name in get_args(HeadPart)}
    if part not in parts:
        raise InputError(f"PART: {part!r} is no part with a head; parts: {', '.join(parts)}")
    _emit(_stores(config, trains=True)[1].roll_back(parts[part]), json)


def train(
    part: Annotated[
        str | None,
        typer.Argument(
            metavar="[PART]",
            help="eagle3, eagle or medusa, if several are served",
            show_default=False,
        ),
    ] = None,
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """Train a head now, however few new responses there are.

    The running service begins within a minute. On a CPU the training waits while requests run.

    Example: `specadapt drafters train --config my.yaml`
    """
    from deployments.head_training.trainer import lacking

    settings, store, kept = _stores(config, trains=True)
    heads, chosen = store.in_force(), _trained(part, settings)
    missing = lacking(kept.stored())
    refusals = {
        "training is paused: `specadapt drafters resume` continues it": heads.paused,
        f"{heads.training} is trained already": heads.training is not None,
        f"the canary of {chosen} is not decided yet: wait, promote it or roll it back": (
            chosen in heads.canaries
        ),
        f"too few answers: {missing}": missing is not None,
    }
    if problem := next((why for why, refused in refusals.items() if refused), None):
        raise InputError(problem)
    _emit(store.train(chosen), json)


def pause(config: flags.Config = None, json: flags.Json = None) -> None:
    """Pause the training of heads. Active versions stay.

    Example: `specadapt drafters pause --config my.yaml`
    """
    _emit(_stores(config, trains=True)[1].pause(True), json)


def resume(config: flags.Config = None, json: flags.Json = None) -> None:
    """Continue the training of heads after a pause.

    Example: `specadapt drafters resume --config my.yaml`
    """
    _emit(_stores(config, trains=True)[1].pause(False), json)


def samples(
    erase: Annotated[
        str | None,
        flags.option(
            "--erase",
            "delete the answers of an owner, as the list names it: 'tenant NAME' or 'key "
            "NAME'; '' without API keys",
            "OWNER",
        ),
    ] = None,
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """Count the responses that are kept for training by owner, or delete an owner's.

    A running service deletes its own copy of what is erased within ten minutes.

    Example: `specadapt drafters samples --erase "tenant acme" --config my.yaml`
    """
    if erase and not re.fullmatch(r"(tenant|key) .+", erase):
        raise InputError(f"--erase: give 'tenant {erase}' or 'key {erase}'")
    _, _, kept = _stores(config)
    found = kept.stored()
    answers = Counter(sample.owner for sample in found)
    tokens = Counter[str]()
    for sample in found:
        tokens[sample.owner] += sample.tokens
    if erase is not None:
        kept.erase(erase)
        erased = {"erased": erase, "answers": answers[erase], "tokens": tokens[erase]}
        text = f"{answers[erase]} answers of {erase or 'requests without keys'} are erased"
        emit(erased, lambda: [text], json)
        return
    rows = [[owner, answers[owner], tokens[owner]] for owner in sorted(answers)]
    columns = ["owner", "answers", "tokens"]
    figures = [dict(zip(columns, row, strict=True)) for row in rows]
    emit(figures, lambda: [table(f"Answers in {kept.uri}", columns, rows)], json)


def _trained(part: str | None, settings: "AppConfig") -> "HeadPart":
    """Return the head that is meant among those that the configured service trains."""
    from deployments.head_training.trainer import trained_parts
    from workers.portfolio import served_bundle

    parts = {str(one): one for one in trained_parts(settings, served_bundle(settings))}
    names = ", ".join(parts)
    if not parts:
        raise InputError("methods: none drafts with a head that is trained: add adaptive or eagle3")
    if part is None and len(parts) > 1:
        raise InputError(f"PART: several heads are trained: name one of {names}")
    chosen = part or names
    if chosen not in parts:
        raise InputError(f"PART: {chosen!r} is not trained by this service, only {names}")
    return parts[chosen]


def _stores(
    config: Path | None, *, trains: bool = False
) -> "tuple[AppConfig, VersionStore, Samples]":
    """Return a service's configuration, and where it keeps versions of heads and responses.

    trains: refuse a service whose replicas do not follow the versions.
    """
    from deployments.configuration import resolved
    from deployments.head_training.samples import Samples
    from deployments.head_training.versions import VersionStore
    from ops.common.settings import served_config
    from workers.bundle import load_bundle
    from workers.weight_files import target_hash

    settings = resolved(served_config(config))
    feedback, bundle = settings.feedback, load_bundle(settings.bundle)
    if trains and not feedback.drafter_training:
        raise InputError(
            "feedback.drafter_training is false, so that replicas serve the bundle's own heads: "
            "name the service's configuration with --config, or set it to true there"
        )
    place = (feedback, bundle.name, target_hash(bundle))
    return settings, VersionStore(*place), Samples(*place)


def _emit(heads: "HeadsInForce", json: Any) -> None:
    def tables() -> Iterator[Any]:
        rows = []
        for part, number in heads.numbers.items():
            canary = heads.canaries.get(part)
            share = f"{canary.number} for {canary.share:.0%} of requests" if canary else None
            rows.append([part, number or "the bundle's own", share])
        yield table("Active", ["part", "version", "canary"], rows)
        yield _training(heads)

    emit(heads.model_dump(mode="json"), tables, json)


def _training(heads: "HeadsInForce") -> str:
    state = "Training is paused." if heads.paused else "Training is not paused."
    part = heads.training
    return f"{state} {part} is trained, or will be as soon as possible." if part else state


def _serves(version: "HeadVersion", heads: "HeadsInForce") -> str:
    canary = heads.canaries.get(version.part)
    if canary is not None and canary.number == version.number:
        return f"canary {canary.share:.0%}"
    return "active" if heads.number(version.part) == version.number else ""


def _gain(version: "HeadVersion") -> str | None:
    gain = version.verdict.overall
    return None if gain is None else f"{gain.candidate / gain.parent - 1.0:+.1%}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes")[:16]
