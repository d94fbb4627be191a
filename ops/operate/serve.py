"""`specadapt serve`: the service in the foreground."""

from typing import Annotated, Any

from ops.common import flags


def serve(
    model: flags.Model = None,
    config: flags.Config = None,
    host: Annotated[
        str | None, flags.option("--host", "address to listen on  [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None,
        flags.option("--port", "HTTP port  [default: the configuration's, 8000]", min=0, max=65535),
    ] = None,
    methods: flags.Methods = None,
    dtype: flags.DtypeFlag = None,
    threads: flags.Threads = None,
    max_model_len: Annotated[
        int | None,
        flags.option("--max-model-len", "tokens of a prompt and its response", "N", min=16),
    ] = None,
    max_num_seqs: Annotated[
        int | None, flags.option("--max-num-seqs", "requests of a batch", "N", min=1)
    ] = None,
) -> None:
    """Run the service until Ctrl-C.

    A model that is not a bundle is imported into the user's cache, where the next start finds it.
    Flags win over the configuration.

    Example: `specadapt serve SmolLM2-135M-Instruct.Q4_1.gguf --port 8001`
    """
    from ops.common.output import quiet_transformers, say
    from ops.common.settings import checked, resolve, served_config
    from ops.models.bundle.sources import bundle_of
    from ops.operate.capacity import with_room_for_contexts
    from schemas import MethodDeployment

    settings = served_config(config)
    quiet_transformers()
    bundle = None if model is None else bundle_of(model, say)
    setup = resolve(settings, bundle, methods, dtype, threads)
    engine = setup.engine.model_copy(
        update=_given(max_context=max_model_len, max_batch=max_num_seqs)
    )
    replicas = 1 if setup.shared else len(setup.methods)
    engine = with_room_for_contexts(engine, setup.bundle, replicas)
    changed: dict[str, Any] = {"bundle": setup.bundle, "engine": engine}
    changed["http"] = settings.http.model_copy(update=_given(host=host, port=port))
    if methods is not None:
        known = {method.name: method for method in settings.methods}
        named = (known.get(name) or MethodDeployment(name=name) for name in setup.names)
        changed["methods"] = tuple(named)
    # Ray takes seconds to import: a wrong configuration is refused before.
    from deployments.run import serve_forever

    serve_forever(checked(settings.model_copy(update=changed)))


def _given(**flags: Any) -> dict[str, Any]:
    """Return the flags that have a value."""
    return {name: value for name, value in flags.items() if value is not None}
