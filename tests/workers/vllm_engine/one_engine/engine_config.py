"""Settings of the engine that the tests of this folder share."""

from decoding import vllm_cpu

CONFIG = vllm_cpu(
    max_batch=16,
    max_waiting=64,
    max_context=384,
    kv_slots=8192,
    # Fewer than a prompt's: drafters read prompts in pieces, and full steps.
    vllm={"enforce_eager": True, "max_num_batched_tokens": 48},
)
