"""`specadapt config`: check and show configurations."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops.common import flags
from ops.common.boundary import InputError

if TYPE_CHECKING:
    from schemas import AppConfig

STORE_SECONDS = 20.0
"""A credential chain may ask several services before it gives up."""


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="configuration files")],
    fields_only: Annotated[
        bool,
        flags.option("--fields-only", "do not check the files that the configuration names"),
    ] = False,
) -> None:
    """Check configurations, Ray Serve configurations and RayService manifests.

    Checks fields and values, then what they name: bundle, methods and their parts, routing table,
    keys. Writes a file to the state store and removes it.

    Example: `specadapt config validate k8s/overlays/*/service/rayservice.yaml --fields-only`
    """
    from deployments.app import checked
    from deployments.configuration import resolved
    from deployments.learning.state_store import StoreAwayError
    from deployments.learning.storage import check_store
    from ops.operate.config_files import read_configs

    for file in files:
        for written in read_configs(file):
            try:
                if not fields_only:
                    config = resolved(written.config)
                    checked(config)
                    _check_parts(config)
                    check_store(config.feedback.state_uri, STORE_SECONDS)
            except StoreAwayError as error:
                raise InputError(f"{written.place}: feedback.state_uri: {error}") from error
            except ValueError as error:
                raise InputError(f"{written.place}: {error}") from error
            typer.echo(f"{written.place}: valid")


def _check_parts(config: "AppConfig") -> None:
    """Raise ValueError for parts and settings that our own engine does not have."""
    from deployments.artifacts import portfolios

    ours = [spec for specs in portfolios(config) for spec in specs if spec.engine == "torch"]
    if ours:  # torch takes seconds to import
        from workers.torch_engine.registry import check_parts

        for spec in ours:
            check_parts(spec)


def show(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="configuration file  [default: the one that `serve` starts with]",
        ),
    ] = None,
) -> None:
    """Print a configuration with its defaults and the bundle's methods filled in.

    Example: `specadapt config show my.yaml`
    """
    import yaml

    from ops.common.settings import served_config
    from ops.operate.config_files import effective, read_config

    config = served_config(None) if file is None else read_config(file)
    typer.echo(yaml.safe_dump(effective(config), sort_keys=False), nl=False)
