"""The configurations that the repository ships, as far as they can be checked without weights and
GPUs."""

import json
import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import yaml

from deployments.artifacts import portfolios
from deployments.configuration import resolved, validated
from deployments.replica.placement import placed_engine, replica_options, resources_of
from router.table import load_table
from schemas import AppConfig, MethodDeployment
from workers.bundle import Bundle
from workers.vllm_engine import shared, speculation

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "configs").glob("*.yaml"))
VLLM = {
    "demo-vllm": 0,
    "demo-vllm-shared": 0,
    "llama-3.1-8b": 4,
    "llama-3.3-70b": 8,
    "qwen3-8b": 1,
    "smollm2-vllm": 0,
    "smollm2-vllm-shared": 0,
}
"""The examples for vLLM's engines, and the GPUs that they need at least."""
GPUS_OF_A_MACHINE = 8
DEMO_CORES, DEMO_GIB, ENGINE_GIB = 2, 24, 6


def read(name: str) -> AppConfig:
    file = ROOT / "configs" / f"{name}.yaml"
    return validated(yaml.safe_load(file.read_text(encoding="utf-8")))


@pytest.fixture
def family(tmp_path):
    """A bundle whose parts are empty folders."""
    parts = ("target", "tokenizer", "draft", "eagle", "eagle3", "medusa")
    for part in parts:
        (tmp_path / part).mkdir()
    return Bundle("family", tmp_path, {part: part for part in parts})


def replicas(config: AppConfig) -> list[tuple[int, int, float]]:
    """Of every deployment: replicas at least and at most, and the GPUs of one."""
    found = []
    for specs in portfolios(config):
        resources = resources_of(specs[0].name, config)
        options = replica_options(specs[0].name, resources, specs, config)
        group = options.get("placement_group_bundles", [])
        gpus = options["ray_actor_options"]["num_gpus"] + sum(b.get("GPU", 0) for b in group)
        found.append((resources.min_replicas, resources.max_replicas, gpus))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_configuration_is_valid(file):
    config = read(file.stem)
    assert portfolios(config)


@pytest.mark.parametrize("name", VLLM)
def test_vllm_can_be_asked_for_every_method(name, family):
    for specs in portfolios(read(name)):
        assert {spec.engine for spec in specs} == {"vllm"}
        assert all(spec.lossless for spec in specs)
        if len(specs) == 1:
            speculation.speculative_config(specs[0], family)
        else:
            assert shared.speculative_config(specs, family) is not None


@pytest.mark.parametrize("name", VLLM)
def test_replicas_fill_whole_gpus_of_one_machine(name):
    deployed = replicas(read(name))
    least = sum(low * gpus for low, _, gpus in deployed)
    most = sum(high * gpus for _, high, gpus in deployed)
    assert least == VLLM[name]
    assert most == (GPUS_OF_A_MACHINE if VLLM[name] else 0)
    for _, _, gpus in deployed:
        assert gpus == 0 or gpus.is_integer() or (1 / gpus).is_integer()


@pytest.mark.parametrize("name", [name for name in VLLM if VLLM[name]])
def test_what_shares_a_gpu_leaves_some_of_its_memory(name):
    config = read(name)
    for specs in portfolios(config):
        resources = resources_of(specs[0].name, config)
        share = placed_engine(resources, specs, config.engine).vllm["gpu_memory_utilization"]
        together = math.floor(1 / resources.num_gpus) if resources.num_gpus else 1
        assert share is not None
        assert 0.85 <= share * together <= 0.95


@pytest.mark.parametrize("name", [name for name in VLLM if not VLLM[name]])
def test_what_has_no_gpu_fits_two_cores_and_24_gib(name):
    config = read(name)
    resources = [resources_of(specs[0].name, config) for specs in portfolios(config)]
    http = config.http
    cpus = sum(r.min_replicas * r.num_cpus for r in resources)
    assert cpus + http.ingress_replicas * http.ingress_num_cpus <= DEMO_CORES
    assert len(resources) * ENGINE_GIB <= DEMO_GIB
    assert config.bundle in (Path("bundles/demo"), Path("bundles/smollm2"))
    assert len(config.methods) >= 3


@pytest.mark.parametrize("folder", ["demo/routing", "demo/routing-vllm", "smollm2/routing"])
def test_a_shipped_table_has_all_of_this_version(folder):
    """Every field and array, and the hashes of the methods' present settings."""
    place = ROOT / "bundles" / folder
    body = json.loads((place / "routing.json").read_text())
    table = load_table(place, settings_hashes=hashes(place.parent, body["methods"]))
    arrays = {name for name, value in dict(table).items() if isinstance(value, np.ndarray)}
    assert body.keys() - {"arrays_sha256"} == dict(table).keys() - arrays - {"live"}


@pytest.mark.parametrize("name", ["demo", "smollm2"])
def test_a_shipped_profile_is_of_the_present_settings(name):
    profile = ROOT / "ops" / "data" / "evaluation" / name / "profile.json"
    told = json.loads(profile.read_text())["settings_hashes"]
    assert told == hashes(ROOT / "bundles" / name, told)


def hashes(bundle: Path, methods: Iterable[str]) -> dict[str, str]:
    """The settings' hashes of a bundle's methods."""
    deployed = tuple(MethodDeployment(name=name) for name in methods)
    engines = portfolios(resolved(AppConfig(bundle=bundle, methods=deployed)))
    return {spec.name: spec.settings_hash() for specs in engines for spec in specs}
