"""The Engine protocol over vLLM (https://github.com/vllm-project/vllm), version 1 of its engine."""
