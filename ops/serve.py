"""`specadapt serve`: the service in the foreground."""

from ops.flags import Bundle, Config


def serve(config: Config = None, bundle: Bundle = None) -> None:
    """Run the service until Ctrl-C, which stops all that it started.

    Example: `specadapt serve --config my.yaml`
    """
    from deployments.run import serve_forever
    from ops.settings import load_config, resolve

    settings = load_config(config)
    folder = resolve(settings, bundle).bundle
    serve_forever(settings.model_copy(update={"bundle": folder}))
