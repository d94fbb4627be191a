"""What a machine with GPUs would start: engines, their memory and their places."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Group

from deployments.artifacts import portfolios
from deployments.configuration import validated
from deployments.replica.placement import PARALLEL, placed_engine, replica_options, resources_of
from ops.common.boundary import InputError
from ops.common.output import table
from ops.models.bundle.sources import SPECULATORS, folder_of, given_parts
from ops.operate.gpu_memory import GIB, memory_of
from schemas import AppConfig, MethodSpec
from workers.bundle import MANIFEST, Bundle, load_bundle
from workers.portfolio import parts_of, with_portfolio
from workers.target_sizes import target_sizes
from workers.vllm_engine.arguments import engine_arguments

GPUS = {
    "nvidia-a100": 79.15,
    "nvidia-h100": 79.19,
    "nvidia-h200": 139.8,
    "nvidia-l4": 22.0,
    "nvidia-l40s": 44.4,
}
"""Memory in GiB as CUDA reports it. The last word is Ray's name of the type, in lower case."""
SIZES = (1, 2, 4, 8)
"""GPUs that an engine may span."""
CONTEXT, BATCH = 8192, 32
"""Engine without a configuration, as the shipped configurations for GPUs have it."""


def planned_bundle(model: str | None, speculators: Sequence[str], configured: Path) -> Bundle:
    """Return the models of a plan. Of each, only config.json is read.

    model: a bundle, a Hugging Face folder or a hub's name; None: the configured bundle. Raises
    InputError and BundleError for what is none of these.
    """
    given = given_parts(speculators, ("config.json",))
    if model is None or (Path(model) / MANIFEST).is_file():
        bundle = load_bundle(model or configured)
    else:
        folder = folder_of(model, "--model", ("config.json",)).resolve()
        bundle = Bundle(model, folder, dict.fromkeys(("target", "tokenizer"), str(folder)))
    own = {part: str(folder.resolve()) for part, folder in given.items()}
    return replace(bundle, parts=bundle.parts | own)


def gpu_plan(
    gpu: str, gpus: int | None, config: AppConfig | None, bundle: Bundle
) -> dict[str, Any]:
    """Return what is started on GPUs of this type: each engine, and the GPUs of all.

    gpus: those of the machine; None: as few as it takes. config: methods that ask for another type
    are left out; None: all methods in one engine, over the fewest GPUs that hold full batches.
    Raises InputError for what does not fit.
    """
    if gpu not in GPUS:
        raise InputError(f"--gpu-plan: {gpu} is unknown: choose from {', '.join(GPUS)}")
    if config is not None:
        engines = _engines(gpu, with_portfolio(config, bundle), bundle)
    else:
        engines = _shared(gpu, gpus, bundle)
    least, most = (sum(one["gpus"] * one["replicas"][end] for one in engines) for end in (0, 1))
    if gpus is not None and least > gpus:
        raise InputError(f"--gpus: {gpus}, and the first replicas take {least:g}")
    for one in engines:
        tokens, context = one["memory"]["kv_tokens"], one["arguments"]["max_model_len"]
        if tokens < context:
            raise InputError(
                f"{', '.join(one['methods'])}: {one['gpus']:g} {gpu} have room for the KV of "
                f"{tokens:,} tokens, not {context:,}: give more --gpus, or a configuration with a "
                f"higher engine.vllm.{PARALLEL} or a lower engine.max_context"
            )
    return {"gpu": gpu, "bytes": int(GPUS[gpu] * GIB), "gpus": [least, most], "engines": engines}


def _shared(gpu: str, gpus: int | None, bundle: Bundle) -> list[dict[str, Any]]:
    """Return one engine with all methods, over the fewest GPUs with KV for full batches."""
    names = ["naive", "ngram", "suffix", *(part for part in SPECULATORS if bundle.has(part))]
    context = min(CONTEXT, target_sizes(bundle.part("target")).positions or CONTEXT)
    for size in (size for size in SIZES if size <= (gpus or size)):
        most = (gpus or size) // size
        shared = {"name": "shared", "num_gpus": size, "num_cpus": 4, "max_replicas": most}
        vllm = {PARALLEL: size} if size > 1 else {}
        config = {
            "layout": "shared",
            "methods": [{"name": f"vllm_{name}"} for name in names],
            "shared": shared,
            "engine": {"max_batch": BATCH, "max_context": context, "vllm": vllm},
        }
        engines = _engines(gpu, validated(config), bundle)
        if engines[0]["memory"]["kv_tokens"] >= BATCH * context:
            break
    return engines


def _engines(gpu: str, config: AppConfig, bundle: Bundle) -> list[dict[str, Any]]:
    on_gpu = config.engine.model_copy(update={"device": "cuda"})
    config = config.model_copy(update={"engine": on_gpu})
    engines, kind = [], gpu.removeprefix("nvidia-").upper()
    for specs in portfolios(config):
        resources = resources_of(specs[0].name, config)
        if resources.accelerator_type in (None, kind):
            engines.append(_engine(specs, config, bundle, int(GPUS[gpu] * GIB)))
    return engines


def _engine(
    specs: Sequence[MethodSpec], config: AppConfig, bundle: Bundle, gpu_bytes: int
) -> dict[str, Any]:
    if config.engine.openai is not None or any(spec.engine != "vllm" for spec in specs):
        raise InputError(f"--gpu-plan: {specs[0].name} does not run in vLLM's engines here")
    resources = resources_of(specs[0].name, config)
    placement = replica_options(resources.name, resources, specs, config)
    arguments = engine_arguments(specs, bundle, placed_engine(resources, specs, config.engine))
    parts = dict.fromkeys(part for spec in specs for part in parts_of(spec, bundle))
    drafters = {part: bundle.part(part) for part in parts}
    group = len(placement.get("placement_group_bundles", ()))
    graphs = (arguments.get("compilation_config") or {}).get("cudagraph_mode")
    return {
        "methods": [spec.name for spec in specs],
        "replicas": [resources.min_replicas, resources.max_replicas],
        "gpus": group or resources.num_gpus,
        "placement": placement,
        "arguments": arguments,
        # vLLM's default captures whole steps and pieces of them.
        "cudagraph_mode": "NONE"
        if arguments.get("enforce_eager")
        else graphs or "FULL_AND_PIECEWISE",
        "memory": memory_of(arguments, drafters, gpu_bytes),
    }


def tables_of(plan: dict[str, Any]) -> Iterator[Group | str]:
    """Yield a table for each engine."""
    for engine in plan["engines"]:
        sizes = dict(engine["memory"])
        each, tokens = sizes.pop("kv_bytes_per_token"), sizes.pop("kv_tokens")
        rows = {
            "replicas": "{} to {}".format(*engine["replicas"]),
            "place of one": f"{engine['gpus']:g} of {plan['gpu']}",
            "CUDA graphs": engine["cudagraph_mode"],
            **{f"{name}, GiB of a GPU": f"{size / GIB:.2f}" for name, size in sizes.items()},
            "KV cache": f"{tokens:,} tokens of {each / 1024:g} KiB",
            **{name: json.dumps(value) for name, value in engine["arguments"].items()},
        }
        yield table(", ".join(engine["methods"]), ["", ""], [[*row] for row in rows.items()])
    yield "GPUs in all: {:g} to {:g}".format(*plan["gpus"])
