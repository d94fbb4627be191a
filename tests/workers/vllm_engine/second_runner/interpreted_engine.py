"""A vLLM engine with its second model runner on a CPU: Triton's interpreter runs its kernels.

`python interpreted_engine.py JOB`, with a job as JSON, prints each request's tokens and statistics.
vLLM refuses Triton on CPUs unless it has a backend for them, so this process claims to have one. It
has to be a process of its own: whether vLLM finds Triton is decided when it is imported.
"""

import json
import os
import sys
from types import SimpleNamespace
from typing import Any


def main(job: dict[str, Any]) -> None:
    """Decode the job's requests, all at once. job: methods, prompts (token ids), tokens, and
    optionally `async` scheduling and further arguments of vLLM's LLM."""
    os.environ |= {
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    claim_triton()
    from vllm import LLM, SamplingParams

    if job.get("async"):
        schedule_ahead()
    llm = LLM(**arguments(job))
    requests = [(prompt, method) for prompt in job["prompts"] for method in job["methods"]]
    greedy = {"temperature": 0.0, "max_tokens": job["tokens"], "ignore_eos": True}
    outputs = llm.generate(
        [{"prompt_token_ids": prompt} for prompt, _ in requests],
        [
            SamplingParams(**greedy, detokenize=False, extra_args={"specadapt_method": method})
            for _, method in requests
        ],
        use_tqdm=False,
    )
    answers = [statistics(output.outputs[0]) for output in outputs]
    [preempted] = [m.value for m in llm.get_metrics() if m.name == "vllm:num_preemptions"]
    [runner] = llm.collective_rpc(lambda worker: type(worker.model_runner).__module__)
    print(json.dumps({"answers": answers, "runner": runner, "preempted": preempted}))


def arguments(job: dict[str, Any]) -> dict[str, Any]:
    """The arguments of LLM for the demo bundle's target and the job's methods."""
    from conftest_bundle import DEMO

    from workers.bundle import load_bundle
    from workers.methods import get_method
    from workers.vllm_engine import shared

    bundle = load_bundle(DEMO)
    specs = [get_method(name) for name in job["methods"]]
    return {
        "model": str(bundle.part("target")),
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 32,
        "kv_cache_memory_bytes": 1 << 28,
        "enable_prefix_caching": False,
        "distributed_executor_backend": "uni",
        "speculative_config": shared.speculative_config(specs, bundle),
        "additional_config": shared.additional_config(specs, bundle),
        "per_request_spec_decode_metrics": "detailed",
        "disable_log_stats": False,
        **shared.engine_arguments(),
        **job.get("arguments", {}),
    }


def statistics(answer: Any) -> dict[str, Any]:
    """Its tokens, and the draft tokens and accepted ones of each step that had any."""
    found = answer.spec_decode_metrics
    return {
        "tokens": list(answer.token_ids),
        "drafted": [] if found is None else found.per_step_drafted,
        "accepted": [] if found is None else found.per_step_accepted,
    }


def claim_triton() -> None:
    """Make vLLM take Triton, and the interpreter take vLLM's kernels."""
    import triton.backends
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    driver = SimpleNamespace(is_active=lambda: True)
    triton.backends.backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def boolean(mask: Any) -> Any:
        """The interpreter computes the n-gram kernel's mask as integers, and refuses those."""
        return TensorHandle(mask.data.astype(bool), mask.dtype)

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        return load(self, pointers, boolean(mask), *rest)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return store(self, pointers, value, boolean(mask), *rest)

    InterpreterBuilder.create_masked_load = masked_load
    InterpreterBuilder.create_masked_store = masked_store


def schedule_ahead() -> None:
    """Switch asynchronous scheduling on, which vLLM's CPU platform switches off."""
    from vllm.platforms.cpu import CpuPlatform

    own = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        own(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
