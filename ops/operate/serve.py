"""`specadapt serve`: the service in the foreground."""

import atexit
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from ops.common import flags
from ops.common.boundary import InputError


def serve(  # noqa: PLR0913 - its parameters are flags
    model: flags.Model = None,
    config: flags.Config = None,
    host: Annotated[
        str | None, flags.option("--host", "address to listen on  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        flags.option("--port", "HTTP port  [default: the configuration's, 8000]", min=0, max=65535),
    ] = None,
    api_key: Annotated[
        str | None,
        flags.option(
            "--api-key", "key that requests must bring; `keys create` makes several", "KEY"
        ),
    ] = None,
    served_model_name: Annotated[
        str | None,
        flags.option("--served-model-name", "name of the model in requests", "NAME"),
    ] = None,
    methods: flags.Methods = None,
    speculator: flags.Speculator = None,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    max_model_len: Annotated[
        int | None,
        flags.option("--max-model-len", "tokens of a prompt and its response", "N", min=16),
    ] = None,
    max_num_seqs: Annotated[
        int | None, flags.option("--max-num-seqs", "requests of a batch", "N", min=1)
    ] = None,
    tensor_parallel_size: Annotated[
        int | None,
        flags.option("--tensor-parallel-size", "GPUs that share vLLM's target", "N", min=1),
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        flags.option(
            "--gpu-memory-utilization", "share of a GPU's memory for vLLM", min=0.01, max=1.0
        ),
    ] = None,
    chat_template: Annotated[
        Path | None, flags.option("--chat-template", "Jinja file instead of the model's", "FILE")
    ] = None,
    tool_call_parser: Annotated[
        str | None,
        flags.option("--tool-call-parser", "format of tool calls  [default: the template's]"),
    ] = None,
) -> None:
    """Run the service until Ctrl-C.

    A model that is not a bundle is imported into the user's cache, where the next start finds it.
    Flags win over the configuration.

    Example: `specadapt serve SmolLM2-135M-Instruct.Q4_1.gguf --port 8001`
    """
    from deployments.configuration import validated
    from ops.common.output import stage
    from ops.common.settings import resolve, served_config
    from ops.models.bundle.sources import bundle_of, derived
    from ops.operate.capacity import with_room_for_contexts
    from schemas import MethodDeployment

    settings = served_config(config)
    bundle = None if model is None else bundle_of(model, stage)
    if speculator or served_model_name:
        bundle = derived(bundle or settings.bundle, speculator or (), served_model_name, stage)
    setup = resolve(settings, bundle, methods, dtype, threads)
    own = _given(
        tensor_parallel_size=tensor_parallel_size, gpu_memory_utilization=gpu_memory_utilization
    )
    engine = setup.engine.model_copy(
        update=_given(
            max_context=max_model_len,
            max_batch=max_num_seqs,
            vllm=setup.engine.vllm | own if own else None,
        )
    )
    fitted = with_room_for_contexts(replace(setup, engine=engine))
    changed: dict[str, Any] = {"bundle": setup.bundle, "engine": fitted}
    http = _given(host=host, port=port, chat_template=chat_template, tool_parser=tool_call_parser)
    if api_key is not None:
        if settings.http.guard.keys_file is not None:
            raise InputError("--api-key: the configuration has http.guard.keys_file; add it there")
        http["guard"] = settings.http.guard.model_copy(update={"keys_file": keys_file(api_key)})
    changed["http"] = settings.http.model_copy(update=http)
    if methods is not None:
        known = {method.name: method for method in settings.methods}
        named = (known.get(name) or MethodDeployment(name=name) for name in setup.names)
        changed["methods"] = tuple(named)
    # Ray takes seconds to import: a wrong configuration is refused before.
    from deployments.run import serve_forever

    fields = settings.model_copy(update=changed).model_dump(mode="json", exclude_unset=True)
    serve_forever(validated(fields), stage=stage)


def keys_file(key: str) -> Path:
    """Return a key file with one key, which goes when this process ends."""
    import yaml

    from deployments.guard.key_file import hash_of

    folder = tempfile.mkdtemp(prefix="specadapt-")  # for its owner alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder) / "keys.yaml"
    body = {"keys": [{"name": "api-key", "sha256": hash_of(key)}]}
    file.write_text(yaml.safe_dump(body), encoding="utf-8")
    return file


def _given(**flags: Any) -> dict[str, Any]:
    """Return the flags that have a value."""
    return {name: value for name, value in flags.items() if value is not None}
