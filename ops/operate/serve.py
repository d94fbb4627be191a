"""`specadapt serve`: the service in the foreground."""

from typing import Annotated

from ops.common import flags
from ops.common.flags import Bundle, Config


def serve(
    config: Config = None,
    bundle: Bundle = None,
    port: Annotated[
        int | None,
        flags.option("--port", "HTTP port  [default: the configuration's, 8000]", min=0, max=65535),
    ] = None,
) -> None:
    """Run the service until Ctrl-C.

    Example: `specadapt serve --config my.yaml --port 8001`
    """
    from ops.common.settings import resolve, served_config

    settings = served_config(config)
    folder = resolve(settings, bundle).bundle
    http = settings.http if port is None else settings.http.model_copy(update={"port": port})
    # Ray takes seconds to import: a wrong configuration is refused before.
    from deployments.run import serve_forever

    serve_forever(settings.model_copy(update={"bundle": folder, "http": http}))
