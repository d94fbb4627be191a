"""Our service as other servers are compared with it."""

from pathlib import Path

from ops.harness.machine import measured_under
from ops.harness.settings import Setup
from router.embed import encoder_dir, read_info
from router.fit.unfitted import unfitted_table
from router.table import save_table
from schemas import AppConfig, MethodDeployment, MethodSpec
from workers.bundle import load_bundle


def our_service(settings: AppConfig, setup: Setup, folder: Path) -> AppConfig:
    """Return the configuration with the set-up's bundle, engine and methods.

    With one method the service has nothing to choose: one replica, and a routing table that knows
    nothing, which is written into `folder`.
    """
    served = settings.model_copy(update={"bundle": setup.bundle, "engine": setup.engine})
    if len(setup.methods) > 1:
        return served
    [spec] = setup.methods
    encoder = settings.router.encoder or encoder_dir()
    conditions = measured_under(setup, load_bundle(setup.bundle))
    save_table(unfitted_table([spec], read_info(encoder), conditions), folder)
    return served.model_copy(
        update={
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
