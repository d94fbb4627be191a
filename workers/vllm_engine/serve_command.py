"""vLLM's own server, `vllm serve`, with several drafters in its engine."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas import MethodSpec
from workers.bundle import MANIFEST, Bundle, load_bundle
from workers.cpu_arithmetic import cpu_dtype
from workers.methods import VLLM_PREFIX
from workers.portfolio import ADAPTIVE, method_of, part_of
from workers.vllm_engine.arguments import tokenizer_folder
from workers.vllm_engine.drafting.portfolio import REQUESTS
from workers.vllm_engine.environment import FIRST_RUNNER, preloaded_openmp
from workers.vllm_engine.shared import (
    SCHEDULER,
    WORKER,
    additional_config,
    cache_salt,
    speculative_config,
)
from workers.vllm_engine.versions import SHARED, cpu_build, require, require_release

PLAIN = "naive"
ALWAYS = (PLAIN, ADAPTIVE)
DRAFTING = ("ngram", "suffix", "medusa", "eagle", "eagle3", "draft")
"""Names of the drafting methods. Here all methods are vLLM's, so they lack our prefix vllm_."""

MIDDLEWARE = "workers.vllm_engine.middleware.RequestMethods"
REPORTS = (
    *("--per-request-spec-decode-metrics", "summary"),
    *("--enable-per-request-metrics", "--enable-prompt-tokens-details"),
)
"""Flags by which answers tell their draft tokens, waiting time and cached tokens."""
OURS = (
    *("--speculative-config", "-sc", "--spec-method", "--spec-model", "--spec-tokens"),
    *("--additional-config", "--worker-cls", "--scheduler-cls", "--async-scheduling"),
)
"""Flags of vLLM's that the command sets, and those that would contradict them."""

HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class ServeCommand:
    """Arguments of `vllm`, and the environment variables that it needs."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def serve_command(
    model: str, methods: Sequence[str], default: str, flags: Sequence[str]
) -> ServeCommand:
    """Return the `vllm serve` command for a model and its methods.

    model: a folder or name of Hugging Face's, or a bundle's folder. methods: names, with
    `NAME=MODEL` for a drafter's weights that no bundle brings. default: the method of requests that
    name none. flags: further ones of vLLM's.

    Raises ValueError and BundleError for what cannot be served.
    """
    _refuse_flags(model, flags)
    models, arguments = _models(model, methods)
    specs = list(models.methods.values())
    require_release("specadapt vllm serve", SHARED)
    require(specs, models)
    if default not in models.methods:
        names = ", ".join(models.methods)
        raise ValueError(f"--default-method: {default!r} is not served; methods: {names}")
    requests = {"default": default, "salts": {spec.name: cache_salt(spec) for spec in specs}}
    own = {
        "--worker-cls": WORKER,
        "--scheduler-cls": SCHEDULER,
        "--speculative-config": json.dumps(speculative_config(specs, models)),
        "--additional-config": json.dumps(additional_config(specs, models) | {REQUESTS: requests}),
        "--middleware": MIDDLEWARE,
    }
    pairs = [part for pair in own.items() for part in pair]
    return ServeCommand(
        ("serve", *arguments, *REPORTS, *_dtype(flags), *flags, *pairs, "--no-async-scheduling"),
        {**FIRST_RUNNER, **preloaded_openmp()},
    )


def _refuse_flags(model: str, flags: Sequence[str]) -> None:
    if model.startswith("-"):
        raise ValueError(f"name the model before vLLM's flags, got {model}")
    for flag in flags:
        name = re.split("[=.]", flag)[0].replace("_", "-").replace("--no-", "--")
        if flag.startswith("-") and name in OURS:
            raise ValueError(f"{flag}: this command sets it by --methods: leave it out")


def _dtype(flags: Sequence[str]) -> tuple[str, ...]:
    """Return float32 for vLLM's CPU build where the CPU's dtype is float32, unless the user names
    a dtype or a configuration file, which may name one. Elsewhere vLLM chooses."""
    named = any(flag.partition("=")[0] in ("--dtype", "--config") for flag in flags)
    return ("--dtype", "float32") if cpu_build() and cpu_dtype() == "float32" and not named else ()


class _Models(Bundle):
    """Parts that vLLM finds by itself: folders, or names on Hugging Face's hub."""

    def part(self, name: str) -> Path:
        return Path(self.parts[name])

    def has(self, name: str) -> bool:
        return name in self.parts


def _models(model: str, methods: Sequence[str]) -> tuple[_Models, list[str]]:
    """Return the models and methods, and the arguments that name the target."""
    bundle = load_bundle(model) if (Path(model) / MANIFEST).is_file() else None
    parts: dict[str, str] = {}
    specs = [_named(PLAIN, bundle)]
    for name, given in _split(methods):
        spec = _named(name, bundle)
        part = part_of(spec)
        if part is not None:
            parts[part] = _weights(name, part, given, bundle)
        elif given:
            raise ValueError(f"--methods: {name} reads no weights: leave {given} out")
        specs.append(spec)
    specs.append(_adaptive(specs, bundle))
    arguments = [model]
    if bundle is not None:
        arguments = [str(bundle.part("target")), "--served-model-name", bundle.name]
        arguments += ["--tokenizer", str(tokenizer_folder(bundle))]
    return _Models(model, Path(model), parts, methods={s.name: s for s in specs}), arguments


def _adaptive(specs: Sequence[MethodSpec], bundle: Bundle | None) -> MethodSpec:
    """Return the method that chooses among those with weights."""
    learned = ",".join(spec.name for spec in specs if part_of(spec) is not None)
    adaptive = _named(ADAPTIVE, bundle)
    options = adaptive.settings.get("drafter", {}) | {"learned": learned}
    settings = adaptive.settings | {"drafter": options}
    return adaptive.model_copy(update={"settings": settings})


def _split(methods: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return names and weights of the drafting methods, in the order that they were named in."""
    seen: set[str] = set()
    for entry in dict.fromkeys(methods):
        name, _, weights = entry.partition("=")
        if name in seen:
            raise ValueError(f"--methods: {name} is named twice: give it one model")
        seen.add(name)
        if name in DRAFTING:
            yield name, weights
        elif name not in ALWAYS:
            raise ValueError(
                f"--methods: {name!r} is unknown: choose from {', '.join(DRAFTING)}; "
                f"always served: {', '.join(ALWAYS)}"
            )


def _named(name: str, bundle: Bundle | None) -> MethodSpec:
    nothing = Bundle("", Path(), {})
    return method_of(VLLM_PREFIX + name, bundle or nothing).model_copy(update={"name": name})


def _weights(name: str, part: str, given: str, bundle: Bundle | None) -> str:
    if given:
        if Path(given).is_dir() or HUB_NAME.fullmatch(given):
            return given
        raise ValueError(f"--methods: {name}={given} is neither a folder nor a name like org/model")
    if bundle is not None and bundle.has(part):
        return str(bundle.part(part))
    where = "the model is no bundle" if bundle is None else f"bundle {bundle.name} has none"
    raise ValueError(f"--methods: {name} needs weights, and {where}: write {name}=FOLDER_OR_NAME")
