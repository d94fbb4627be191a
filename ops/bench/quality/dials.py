"""Lossy methods at the settings of their dial, and their drafts under lossless verification."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ops.harness.boundary import InputError
from ops.harness.settings import names
from router.fit.speedup import BASELINE
from schemas import MethodSpec
from workers.bundle import Bundle
from workers.methods import METHODS, get_method
from workers.portfolio import decodable, method_of

DIALS: dict[str, dict[str, tuple[float, ...]]] = {
    "typical": {"epsilon": (0.01, 0.09, 0.3), "delta": ()},
    "fuzzy": {"threshold": (0.15, 0.25, 0.4)},
}
"""Settings that make a verifier looser or stricter, with the default values to try."""
GREEDY_AT_ZERO = frozenset({"typical"})
"""Verifiers that equal greedy matching at temperature 0, whatever their dial."""


@dataclass(frozen=True)
class Variant:
    """A method to measure.

    method: the method whose drafts it verifies. dial, value: the changed setting; None for plain
    decoding, lossless verification, and verifiers without a dial.
    """

    spec: MethodSpec
    method: str
    dial: str | None = None
    value: float | None = None

    def differs_at(self, temperature: float) -> bool:
        """Return whether the variant can differ from greedy matching at this temperature."""
        return temperature > 0.0 or self.spec.verifier not in GREEDY_AT_ZERO


def lossy_methods(bundle: Bundle) -> tuple[MethodSpec, ...]:
    """Return the lossy methods that the bundle supports. Raises InputError if there is none."""
    known = (method_of(name, bundle) for name in METHODS)
    found = tuple(spec for spec in known if not spec.lossless and decodable(spec, bundle))
    if not found:
        raise InputError(f"--bundle: {bundle.name} has no part that a lossy method drafts with")
    return found


def parse_dials(texts: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Parse `SETTING=A,B` into values by setting.

    Raises InputError for an unknown setting, and for values that repeat or are not finite.
    """
    settings = [setting for dial in DIALS.values() for setting in dial]
    found: dict[str, tuple[float, ...]] = {}
    for text in texts:
        setting, _, listed = text.partition("=")
        if setting not in settings:
            raise InputError(f"--dial: {setting!r} is none of {', '.join(settings)}")
        try:
            values = tuple(float(value) for value in names(listed, "--dial"))
        except ValueError as error:
            raise InputError(f"--dial: {text!r} is not {setting}=NUMBER,NUMBER") from error
        if not all(map(math.isfinite, values)) or len({f"{v:g}" for v in values}) < len(values):
            raise InputError(f"--dial: {text!r} repeats a value, or has one that is not finite")
        found[setting] = values
    return found


def variants_of(specs: Sequence[MethodSpec], dials: dict[str, tuple[float, ...]]) -> list[Variant]:
    """Return the variants to measure: plain decoding first.

    Each lossy method is followed by its drafts under lossless verification and by its settings;
    lossless methods stay as they are. Raises InputError if no method is lossy, or if no method has
    one of the dials.
    """
    lossy = [spec for spec in specs if not spec.lossless]
    if not lossy:
        raise InputError("--methods: none is lossy; `specadapt methods` lists the lossy ones")
    turned = {setting for spec in lossy for setting in DIALS.get(spec.verifier, {})}
    if idle := dials.keys() - turned:
        raise InputError(f"--dial: no method here has {min(idle)}")
    found = [Variant(get_method(BASELINE), BASELINE)]
    for spec in specs:
        if not spec.lossless:
            found += [Variant(_lossless(spec), spec.name), *_turned(spec, dials)]
        elif spec.name != BASELINE:
            found.append(Variant(spec, spec.name))
    return found


def _turned(spec: MethodSpec, dials: dict[str, tuple[float, ...]]) -> list[Variant]:
    built_in = DIALS.get(spec.verifier, {})
    asked = {setting: dials[setting] for setting in built_in if setting in dials}
    found = [
        _at(spec, setting, value)
        for setting, values in (asked or built_in).items()
        for value in values
    ]
    return found or [Variant(spec, spec.name)]


def _at(spec: MethodSpec, setting: str, value: float) -> Variant:
    label = f"{value:g}".replace(".", "_").replace("-", "_").replace("+", "")
    settings = {
        **spec.settings,
        "verifier": {**spec.settings.get("verifier", {}), setting: value},
    }
    named = {"name": f"{spec.name}_{setting}_{label}", "settings": settings}
    return Variant(spec.model_copy(update=named), spec.name, setting, value)


def _lossless(spec: MethodSpec) -> MethodSpec:
    """Return the method with the verifier that keeps the target's distribution for its drafts."""
    sampled = spec.settings.get("tree", {}).get("sample", False)
    verifier = "rejection" if spec.tree == "chain" else "multi_step" if sampled else "one_hot"
    update = {
        "name": f"{spec.name}_lossless",
        "verifier": verifier,
        "lossless": True,
        "settings": {role: own for role, own in spec.settings.items() if role != "verifier"},
    }
    return spec.model_copy(update=update)
