"""`specadapt config validate`: what a service would refuse, before it is started."""

from pathlib import Path
from typing import Annotated

import typer

from ops.cli.boundary import InputError

STORE_SECONDS = 20.0
"""A credential chain may ask several services before it gives up."""


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="configurations")],
    fields_only: Annotated[
        bool,
        typer.Option("--fields-only", help="not the files it names: they are on other machines"),
    ] = False,
) -> None:
    """Check configurations, Ray Serve configurations and RayService manifests.

    Fields and values first, then what they name: bundle, methods and their parts, routing table,
    keys. The state's store is opened, and a file is written there and removed.

    Example: `specadapt config validate k8s/overlays/*/service/rayservice.yaml --fields-only`
    """
    from deployments.app import checked
    from deployments.configuration import ConfigError, resolved
    from deployments.learning.file_system import StoreAwayError
    from deployments.learning.storage import check_store
    from ops.config.files import read_configs

    for file in files:
        for written in read_configs(file):
            try:
                if not fields_only:
                    config = resolved(written.config)
                    checked(config)
                    check_store(config.feedback.state_uri, STORE_SECONDS)
            except StoreAwayError as error:
                raise InputError(f"{written.place}: feedback.state_uri: {error}") from error
            except ConfigError as error:
                raise InputError(f"{written.place}: {error}") from error
            typer.echo(f"{written.place}: valid")
