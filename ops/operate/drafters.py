"""`specadapt drafters`: the heads that a service trains."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ops.common import flags
from ops.common.boundary import InputError
from ops.common.output import emit, table
from ops.operate.samples import place_of

if TYPE_CHECKING:
    from deployments.drafters.versions import VersionStore
    from schemas import Gain, HeadPart, HeadsInForce, HeadVersion

Number = Annotated[int, typer.Argument(min=1, metavar="NUMBER", help="number of the version")]


def listing(config: flags.Config = None, json: flags.Json = None) -> None:
    """List the versions of all heads, newest first, and which of them serve.

    Example: `specadapt drafters list --config my.yaml`
    """
    store = _store(config)
    heads, versions = store.in_force(), store.all()
    figures = {
        "in_force": heads.model_dump(mode="json"),
        "versions": [version.model_dump(mode="json") for version in versions],
    }
    columns = ["number", "part", "parent", "created", "answers", "gain", "serves"]
    rows = [
        [
            *(version.number, version.part, version.parent, _time(version.created)),
            *(version.samples.answers, _gain(version.verdict.overall), _serves(version, heads)),
        ]
        for version in versions
    ]
    title = f"Versions in {store.uri}"
    emit(figures, lambda: [table(title, columns, rows), _training(heads)], json)


def show(number: Number, config: flags.Config = None, json: flags.Json = None) -> None:
    """Show where a version comes from and how it compares with its parent on held answers.

    Example: `specadapt drafters show 3 --config my.yaml`
    """
    store = _store(config)
    with _known():
        version = store.get(number)
    verdict, samples = version.verdict, version.samples
    descent = f"tuned from {version.parent}" if version.parent else "the first of its line, trained"
    groups = {"all": verdict.overall, **verdict.by_group}
    columns = ["group", "held", "parent", "candidate", "gain", "interval"]
    rows = [
        [
            *(name, gain.conversations, gain.parent, gain.candidate, _gain(gain)),
            f"{gain.low:+.1%}, {gain.high:+.1%}",
        ]
        for name, gain in groups.items()
        if gain is not None
    ]
    text = (
        f"version {number} of {version.part}, {descent} on "
        f"{samples.answers} answers ({samples.tokens} tokens) from {_time(samples.first)} to "
        f"{_time(samples.last)}; {_serves(version, store.in_force()) or 'does not serve'}"
    )
    title = "Tokens per step by held conversations, with the 95% interval of the gain"
    emit(version.model_dump(mode="json"), lambda: [text, table(title, columns, rows)], json)


def promote(number: Number, config: flags.Config = None, json: flags.Json = None) -> None:
    """Put a version in force in the place of the present one and of a canary.

    Replicas load it within seconds. Running answers keep the version that they began with.

    Example: `specadapt drafters promote 3 --config my.yaml`
    """
    store = _followed(config)
    with _known():
        _emit(store.promote(number), json)


def rollback(
    part: Annotated[
        str, typer.Argument(metavar="PART", help="eagle3, eagle or medusa", show_default=False)
    ],
    config: flags.Config = None,
    json: flags.Json = None,
) -> None:
    """End a head's canary or, if there is none, return from the version in force to its parent.

    Example: `specadapt drafters rollback eagle3 --config my.yaml`
    """
    from schemas import HeadPart

    parts = {name: name for name in get_args(HeadPart)}
    if part not in parts:
        raise InputError(f"PART: {part!r} is no part with a head; parts: {', '.join(parts)}")
    _emit(_followed(config).roll_back(parts[part]), json)


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
    """Train a head now, however few new answers there are.

    The running service begins within a minute. On a CPU the training waits while requests run.

    Example: `specadapt drafters train --config my.yaml`
    """
    from deployments.drafters.rounds import lacking, whole_conversations
    from deployments.drafters.samples import Samples
    from workers.target_hash import target_hash

    store = _followed(config)
    heads, chosen = store.in_force(), _trained(part, config)
    feedback, bundle = place_of(config)
    target, stored = target_hash(bundle), Samples(feedback, bundle.name).stored()
    missing = lacking(whole_conversations(each for each in stored if each.target == target))
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
    """Pause the training of heads. Versions in force stay.

    Example: `specadapt drafters pause --config my.yaml`
    """
    _emit(_followed(config).pause(True), json)


def resume(config: flags.Config = None, json: flags.Json = None) -> None:
    """Continue the training of heads after a pause.

    Example: `specadapt drafters resume --config my.yaml`
    """
    _emit(_followed(config).pause(False), json)


def _trained(part: str | None, config: Path | None) -> "HeadPart":
    """Return the head that is meant among those that the configured service trains."""
    from deployments.configuration import resolved
    from deployments.drafters.trainer import trained_parts
    from ops.common.settings import served_config
    from workers.portfolio import served_bundle

    settings = resolved(served_config(config))
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


def _store(config: Path | None) -> "VersionStore":
    from deployments.drafters.versions import VersionStore
    from workers.target_hash import target_hash

    feedback, bundle = place_of(config)
    return VersionStore(feedback, bundle.name, target_hash(bundle))


def _followed(config: Path | None) -> "VersionStore":
    """Return the store, if the replicas of the configured service follow it."""
    from ops.common.settings import served_config

    if not served_config(config).feedback.drafter_training:
        raise InputError(
            "feedback.drafter_training is false, so that replicas serve the bundle's own heads: "
            "name the service's configuration with --config, or set it to true there"
        )
    return _store(config)


@contextmanager
def _known() -> Iterator[None]:
    try:
        yield
    except LookupError as error:
        raise InputError(f"NUMBER: {error}") from error


def _emit(heads: "HeadsInForce", json: Any) -> None:
    def tables() -> Iterator[Any]:
        rows = []
        for part, number in heads.numbers.items():
            canary = heads.canaries.get(part)
            share = f"{canary.number} for {canary.share:.0%} of requests" if canary else None
            rows.append([part, number or "the bundle's own", share])
        yield table("In force", ["part", "version", "canary"], rows)
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
    return "in force" if heads.number(version.part) == version.number else ""


def _gain(gain: "Gain | None") -> str | None:
    if gain is None:
        return None
    return f"{gain.candidate / gain.parent - 1.0:+.1%}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes")[:16]
