"""`specadapt bench gpu`: exactness, step times and throughput by batch, where only torch is."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ops.harness import flags
from ops.harness.numbers import whole_numbers
from ops.harness.output import emit, progress, table

ON_CUDA, ON_CPU = (1, 2, 4, 8, 16, 32, 64), (1, 4)


def bench_gpu(
    bundle: flags.Bundle = None,
    config: flags.Config = None,
    methods: flags.Methods = None,
    batches: Annotated[
        str | None,
        typer.Option(
            "--batches",
            metavar="N,N",
            help="concurrent requests  [default: 1 to 64 on a GPU, 1 and 4 on a CPU]",
        ),
    ] = None,
    exact: Annotated[
        int,
        typer.Option(
            "--exact",
            min=1,
            metavar="N",
            help="number of prompts to compare with Hugging Face in float32",
        ),
    ] = 8,
    vllm: Annotated[
        bool,
        typer.Option(
            "--vllm",
            help="measure vLLM's engines instead: several methods in one, and each method alone",
        ),
    ] = False,
    prompts: flags.Prompts = None,
    ids: flags.Ids = None,
    max_tokens: flags.MaxTokens = 64,
    temperature: flags.Temperature = 0.0,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    seed: flags.Seed = 0,
    json: flags.Json = None,
) -> None:
    """Measure the engine alone; needs torch, transformers and safetensors, but not Ray.

    In float32, compares every method's answers, alone and in a mixed batch, with Hugging Face's.
    In --dtype, measures step time and tokens per second by the number of concurrent requests.

    Example: `specadapt bench gpu --bundle bundles/demo --json gpu.json`
    """
    from ops.bench.gpu_runs import Plan, measure
    from ops.harness.boundary import InputError
    from ops.harness.prompts import select
    from ops.harness.settings import device_of, load_config, resolve, with_baseline

    loaded, run, tables = load_config(config), measure, _tables
    if vllm:
        from ops.bench.gpu_vllm import default_methods, measure_vllm

        run, tables = measure_vllm, _group_tables
        methods = methods or default_methods(resolve(loaded, bundle).bundle)
    setup = with_baseline(resolve(loaded, bundle, methods, dtype, threads))
    if vllm and any(spec.engine != "vllm" for spec in setup.methods):
        raise InputError("--vllm: --methods may name vLLM's methods only, such as vllm_ngram")
    device = device_of(setup.engine)
    usual = ON_CUDA if device == "cuda" else ON_CPU
    sizes = usual if batches is None else whole_numbers(batches, "--batches", 1)
    chosen = select(prompts, ids, max(*sizes, exact), seed)
    plan = Plan(setup, chosen, sizes, exact, max_tokens, temperature, seed)
    with progress() as bar:
        figures = asyncio.run(run(plan, bar))
    emit(figures, lambda: tables(figures, sizes), json)


def _group_tables(figures: dict[str, Any], sizes: Sequence[int]) -> list[Any]:
    names = [str(size) for size in sizes]
    rows = []
    for group, found in figures["groups"].items():
        if "error" in found:
            rows.append([group, found["error"], None, *(None for _ in names)])
        for method, by_batch in found.get("methods", {}).items():
            exact = found.get("exact", {}).get(method)
            rows.append([group, method, exact, *(by_batch.get(size) for size in names)])
    title = f"Tokens a second on {figures['device']}, by requests at once"
    return [table(title, ["engine", "method", "exact in float32", *names], rows)]


def _tables(figures: dict[str, Any], sizes: Sequence[int]) -> list[Any]:
    names = [str(size) for size in sizes]
    exact = figures["exact"]
    return [
        table(
            f"Tokens a second on {figures['device']}, by requests at once",
            ["method", "exact in float32", *names],
            [
                [method, exact.get(method), *(by_batch.get(size) for size in names)]
                for method, by_batch in (figures["methods"] | figures["hf"]).items()
            ],
        ),
        table(
            "Milliseconds of a step",
            ["method", *names],
            [[name, *(ms.get(size) for size in names)] for name, ms in figures["step_ms"].items()],
        ),
    ]
