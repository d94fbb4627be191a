"""The service with one method, and nothing to choose: to be compared with another server."""

from pathlib import Path

import numpy as np

from ops.boundary import InputError
from ops.settings import Setup, measured_under
from router.embed import encoder_dir, read_info
from router.table import save_table
from schemas import (
    TEMPERATURE_BANDS,
    AppConfig,
    EncoderInfo,
    MeasuredUnder,
    MethodDeployment,
    MethodSpec,
    RoutingTable,
)
from workers.bundle import load_bundle


def lone_service(settings: AppConfig, setup: Setup, folder: Path) -> AppConfig:
    """The configuration of a service of the set-up's only method, on one replica with all cores
    that its threads need; its routing table, which knows nothing, is written into `folder`.

    Raises InputError where the set-up has several methods.
    """
    if len(setup.methods) != 1:
        raise InputError(f"--method: name one method, not {', '.join(setup.names)}")
    [spec] = setup.methods
    encoder = settings.router.encoder or encoder_dir()
    conditions = measured_under(setup, load_bundle(setup.bundle))
    save_table(_nothing_known(spec, read_info(encoder), conditions), folder)
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


def _nothing_known(
    spec: MethodSpec, encoder: EncoderInfo, conditions: MeasuredUnder
) -> RoutingTable:
    """A table of one cluster and one method without any evidence."""
    bands = np.zeros((1, 1, len(TEMPERATURE_BANDS)))
    return RoutingTable(
        fit_id="none",
        encoder=encoder,
        measured_under=conditions,
        methods=(spec.name,),
        settings_hashes={spec.name: spec.settings_hash()},
        lossless={spec.name: spec.lossless},
        default_method=spec.name,
        assignment=(spec.name,),
        centroids=np.zeros((1, encoder.dimension)),
        acceptance_tokens=bands,
        acceptance_steps=bands,
        live_tokens=bands,
        live_steps=bands,
        batch_grid=(1,),
        context_grid=(1,),
        step_seconds=np.full((1, 1, 1), 0.01),
        step_count=np.zeros((1, 1, 1)),
        live_step_ratio=np.ones(1),
        prefill_seconds=np.zeros((1, 2)),
        output_tokens=np.ones(1),
        output_count=np.zeros(1),
        speedup=np.zeros((1, 1)),
        speedup_count=np.zeros((1, 1)),
    )
