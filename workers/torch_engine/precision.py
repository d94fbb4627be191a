"""The choice of `dtype: auto`: the faster arithmetic for the target on this machine, measured.

bfloat16 takes half the memory of float32, and is faster on CPUs that compute in it. On others
its products of several rows, as in verification, take many times longer.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import platform
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import torch

from workers.bundle import Bundle
from workers.torch_engine.models.families import NotCoveredError, read_shape
from workers.torch_engine.models.layout import Span
from workers.torch_engine.models.llama import Llama
from workers.torch_engine.models.operators import computes_bfloat16
from workers.torch_engine.models.shape import LlamaShape
from workers.torch_engine.models.weights import load_model_weights
from workers.user_cache import user_cache

logger = logging.getLogger(__name__)

ROWS = (1, 2, 4, 8, 16)
"""Tokens of the forwards that are timed after a prompt of PROMPT tokens."""
PROMPT = 64
ROUNDS = 5
LEAD = 1.1
"""Speedup that float32 needs to be chosen, since it takes twice the memory."""

MEASURED_BYTES = 1 << 28
"""Bytes of a large target's first layers that are timed, in float32: more than a cache holds."""


def chosen(dtype: str, bundle: Bundle, device: torch.device, threads: int) -> str:
    """Return `dtype`, or "bfloat16" or "float32" for "auto"; never "int8", which changes the
    model.

    A CPU is measured once; the result is cached for the user by CPU and flags, threads, torch's
    version and model. Of several processes one measures and the others wait.
    """
    if dtype != "auto":
        return dtype
    if device.type != "cpu":
        return "bfloat16"
    folder = bundle.part("target")
    file = user_cache("precision") / f"{_fingerprint(folder, threads)}.json"
    with _locked(file.with_suffix(".lock")):
        try:
            return str(json.loads(file.read_text(encoding="utf-8"))["dtype"])
        except (OSError, ValueError, KeyError):
            # in a thread that ends with its OpenMP threads: with a second set of them the
            # decoding thread's would sleep between operators
            with ThreadPoolExecutor(1) as aside:
                measured = aside.submit(measure, folder, threads).result()
            _keep(measured, file)
    logger.info("%s is decoded in %s on this CPU (%s)", folder, measured["dtype"], measured)
    return str(measured["dtype"])


def measure(folder: Path, threads: int) -> dict[str, object]:
    """Choose the dtype for a part by timing forward passes; return it with the milliseconds of
    forwards over ROWS tokens and over a prompt in each dtype. For a model that transformers
    computes the CPU's flags decide."""
    try:
        shape = read_shape(folder)
    except NotCoveredError:
        return {"dtype": "bfloat16" if computes_bfloat16() else "float32"}
    weights, cpu = load_model_weights(folder, shape), torch.device("cpu")
    shape = _first_layers(shape)
    with _thread_count(threads), torch.inference_mode():
        models = {
            name: Llama(shape, weights, dtype, cpu)
            for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32))
        }
        rounds = {name: [_milliseconds(model)] for name, model in models.items()}  # warms up
        for _ in range(ROUNDS):
            for name, model in models.items():
                rounds[name].append(_milliseconds(model))
    medians = {
        name: [statistics.median(column) for column in zip(*taken[1:], strict=True)]
        for name, taken in rounds.items()
    }
    lead = math.prod(map(float.__truediv__, medians["bfloat16"], medians["float32"]))
    in_float32 = lead ** (1.0 / (len(ROWS) + 1)) > LEAD
    figures = {name: [round(value, 3) for value in taken] for name, taken in medians.items()}
    return {"dtype": "float32" if in_float32 else "bfloat16", "milliseconds": figures}


def _first_layers(shape: LlamaShape) -> LlamaShape:
    attention = shape.hidden * shape.head_dim * 2 * (shape.heads + shape.kv_heads)
    layer_bytes = 4 * (attention + 3 * shape.hidden * shape.ffn)
    layers = max(1, min(shape.layers, MEASURED_BYTES // layer_bytes))
    return replace(shape, layers=layers, attentions=shape.attentions[:layers])


def _milliseconds(model: Llama) -> list[float]:
    """Time forward passes of each size in ROWS after a prompt, then the prompt itself."""
    pool = model.make_pool(1, PROMPT + max(ROWS))
    lease = pool.acquire()
    taken = []
    for length, tokens in [*((PROMPT, rows) for rows in ROWS), (0, PROMPT)]:
        lease.length = length
        span = Span(lease, [0] * tokens, logits_from=0 if length else tokens - 1)
        started = time.perf_counter()
        model.forward(model.lay_out([span], pool), pool)
        taken.append(1e3 * (time.perf_counter() - started))
    return taken


def _fingerprint(folder: Path, threads: int) -> str:
    parts = [
        *(platform.machine(), _cpu(), torch.backends.cpu.get_cpu_capability(), torch.__version__),
        *(os.cpu_count(), threads, os.environ.get("ONEDNN_MAX_CPU_ISA")),
        (folder / "config.json").read_text(encoding="utf-8"),
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _cpu() -> list[str]:
    """Return the processor's name and flags, as Linux reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return [platform.processor()]
    return sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})


def _keep(measured: dict[str, object], file: Path) -> None:
    scratch = file.with_suffix(".tmp")
    try:
        scratch.write_text(json.dumps(measured) + "\n", encoding="utf-8")
        scratch.replace(file)
    except OSError as error:
        logger.warning("the choice of precision is not kept: %s", error)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock file meanwhile; do nothing where no file may be written."""
    with ExitStack() as held:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(held.enter_context(file.open("w")), fcntl.LOCK_EX)
        yield


@contextmanager
def _thread_count(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
