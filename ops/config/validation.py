"""`specadapt config validate`: what a service would refuse, before it is started."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli.boundary import InputError


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="configurations")],
    fields_only: Annotated[
        bool,
        typer.Option("--fields-only", help="not the files it names: they are on other machines"),
    ] = False,
) -> None:
    """Check configurations, Ray Serve configurations and RayService manifests.

    Fields and values first, then what they name: bundle, methods and their parts, routing table,
    keys.

    Example: `specadapt config validate k8s/overlays/*/service/rayservice.yaml --fields-only`
    """
    from deployments.app import checked
    from deployments.configuration import ConfigError, resolved
    from ops.config.files import read_configs

    for file in files:
        for written in read_configs(file):
            try:
                if not fields_only:
                    checked(resolved(written.config))
            except ConfigError as error:
                raise InputError(f"{written.place}: {error}") from error
            typer.echo(f"{written.place}: valid")
