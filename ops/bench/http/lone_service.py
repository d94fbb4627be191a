"""The service with one method, and nothing to choose: to be compared with another server."""

from pathlib import Path

from ops.harness.boundary import InputError
from ops.harness.machine import measured_under
from ops.harness.settings import Setup
from router.embed import encoder_dir, read_info
from router.fit.unfitted import unfitted_table
from router.table import save_table
from schemas import AppConfig, MethodDeployment, MethodSpec
from workers.bundle import load_bundle


def lone_service(settings: AppConfig, setup: Setup, folder: Path) -> AppConfig:
    """The configuration of a service of the set-up's only method on one replica; its routing table,
    which knows nothing, is written into `folder`.

    Raises InputError where the set-up has several methods.
    """
    if len(setup.methods) != 1:
        raise InputError(f"--method: name one method, not {', '.join(setup.names)}")
    [spec] = setup.methods
    encoder = settings.router.encoder or encoder_dir()
    conditions = measured_under(setup, load_bundle(setup.bundle))
    save_table(unfitted_table([spec], read_info(encoder), conditions), folder)
    return settings.model_copy(
        update={
            "bundle": setup.bundle,
            "engine": setup.engine,
            "layout": "per_method",
            "methods": (_deployment(spec, settings),),
            "router": settings.router.model_copy(
                update={"routing": folder, "default_method": None, "exploration": 0.0}
            ),
        }
    )


def _deployment(spec: MethodSpec, settings: AppConfig) -> MethodDeployment:
    configured = {method.name: method for method in settings.methods}
    known = configured.get(spec.name) or MethodDeployment(name=spec.name, spec=spec)
    return known.model_copy(update={"min_replicas": 1, "max_replicas": 1})
