"""What the application reads from disk: method specs, routing table, encoder."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from router.embed import Encoder, EncoderMissingError, encoder_dir, read_info
from router.fit.unfitted import unfitted_table
from router.table import load_table, restrict
from schemas import (
    AppConfig,
    EncoderInfo,
    EngineConfig,
    HeadPart,
    MeasuredUnder,
    MethodSpec,
    RoutingTable,
)
from workers.bundle import Bundle, load_bundle
from workers.methods import get_method
from workers.portfolio import copies_predictions, exchanged_parts
from workers.target_sizes import target_sizes

logger = logging.getLogger(__name__)

Embed = Callable[[str], NDArray[np.float32]]


def method_specs(config: AppConfig, names: Iterable[str]) -> tuple[MethodSpec, ...]:
    """Return the specs that the configuration defines, else those of that name.

    Raises ValueError for an unknown name.
    """
    own = {m.name: m.spec for m in config.methods if m.spec is not None}
    return tuple(own.get(name) or get_method(name) for name in names)


def portfolios(config: AppConfig) -> list[tuple[MethodSpec, ...]]:
    """Return the methods that each engine holds: one each, or all in the shared layout.

    Raises ValueError for an unknown name.
    """
    specs = method_specs(config, [method.name for method in config.methods])
    return [specs] if config.layout == "shared" else [(spec,) for spec in specs]


def read_template(file: Path) -> str:
    """Return the chat template of a file. Raises ValueError naming the setting."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"http.chat_template: {file} cannot be read: {error}") from error


def copying(config: AppConfig) -> frozenset[str]:
    """Return the methods that copy from the response that a request predicts."""
    if config.engine.openai is not None:  # its servers take no predictions
        return frozenset()
    specs = [spec for portfolio in portfolios(config) for spec in portfolio]
    return frozenset(spec.name for spec in specs if copies_predictions(spec))


def exchanged_heads(config: AppConfig, bundle: Bundle) -> dict[str, tuple[HeadPart, ...]]:
    """Return by served method the heads that its engine exchanges while it serves."""
    if config.engine.openai is not None:
        return {}
    engines = [exchanged_parts(specs, bundle) for specs in portfolios(config)]
    return {method: parts for engine in engines for method, parts in engine.items()}


def served_table(config: AppConfig) -> RoutingTable:
    """Return the routing table, restricted to the methods served.

    It is the configured table or else the bundle's. If the bundle has none, or one that lacks a
    method, an unfitted table is learned while serving. Raises ValueError if the configured table is
    missing, or a table does not match the encoder or the methods' settings.
    """
    names = [method.name for method in config.methods]
    specs = method_specs(config, names)
    folder = config.router.routing or config.bundle / "routing"
    if config.router.routing is None and not folder.exists():
        return _unfitted(config, specs, "has no routing table")
    hashes = {spec.name: spec.settings_hash() for spec in specs}
    known = load_table(folder, _encoder_info(config), hashes)
    if config.router.routing is None and (missing := [n for n in names if n not in known.methods]):
        return _unfitted(config, specs, f"has a routing table without {', '.join(missing)}")
    return restrict(known, names)


def _unfitted(config: AppConfig, specs: Sequence[MethodSpec], why: str) -> RoutingTable:
    engine = config.engine
    under = MeasuredUnder(
        machine="none",
        device=engine.device,
        dtype=engine.dtype,
        threads=engine.threads,
        bundle=load_bundle(config.bundle).name,
    )
    logger.warning(
        "%s %s: all prompts are one cluster until `specadapt fit` makes one with these methods",
        config.bundle,
        why,
    )
    encoder = _encoder_info(config) or EncoderInfo(name="none", dimension=1, sha256="none")
    return unfitted_table(specs, encoder, under, config.router.default_method)


def served_encoder(config: AppConfig) -> Encoder | None:
    """Load the configured encoder; None, with an error in the log, if it is missing."""
    try:
        return Encoder(config.router.encoder or encoder_dir())
    except EncoderMissingError as error:
        logger.error("prompts go to the default method: %s", error)
        return None


def embedding(encoder: Encoder | None) -> Embed | None:
    """Return the function from a prompt's text to its vector [1, dimension]."""
    return None if encoder is None else lambda text: encoder.embed([text])


def _encoder_info(config: AppConfig) -> EncoderInfo | None:
    try:
        return read_info(config.router.encoder or encoder_dir())
    except EncoderMissingError:
        return None


def context_length(bundle: Bundle, engine: EngineConfig) -> int:
    """Return the prompt and output tokens of one request: the smaller of the setting and the
    target's."""
    own = target_sizes(bundle.part("target")).positions
    slots = engine.max_context if engine.openai is not None else engine.kv_slots
    configured = min(engine.max_context, slots)
    return configured if own is None else min(configured, own)
