"""Methods' drafters and settings as vLLM's speculative_config, and what is refused."""

import shutil
from pathlib import Path
from typing import get_args

import pytest
from conftest_bundle import with_parts

from schemas import MethodSpec
from schemas.config import Setting
from workers.bundle import Bundle, BundleError
from workers.methods import get_method
from workers.vllm_engine import shared, versions
from workers.vllm_engine.speculation import FIELDS, speculative_config


def drafting(name: str, drafter: str, tokens: int = 4, **settings: Setting) -> MethodSpec:
    return MethodSpec(
        name=name,
        engine="vllm",
        drafter=drafter,
        verifier="rejection",
        lossless=True,
        source="a test",
        settings={"drafter": settings, "stop": {"gamma": tokens}},
    )


def with_folder(bundle: Bundle, folder: Path, part: str) -> Bundle:
    """Return a copy of the bundle in `folder` that has one more part, in an empty folder."""
    shutil.copytree(bundle.path, folder, dirs_exist_ok=True)
    (folder / part).mkdir()
    return with_parts(folder, **{part: part})


def test_public_drafters_get_their_fields(bundle: Bundle, tmp_path: Path) -> None:
    family = with_folder(bundle, tmp_path, "peagle")
    assert speculative_config(get_method("vllm_peagle"), family) == {
        "method": "eagle3",
        "model": str(tmp_path / "peagle"),
        "parallel_drafting": True,
        "num_speculative_tokens": 7,
        "rejection_sample_method": "standard",
    }
    with pytest.raises(BundleError, match="no part 'dflash'"):
        speculative_config(get_method("vllm_dflash"), bundle)


def test_layers_for_multi_token_prediction_may_be_a_part(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "installed", lambda: "0.32.0")
    mtp = get_method("vllm_mtp")
    with pytest.raises(ValueError, match="add a part 'mtp' to the bundle, or leave"):
        versions.require([mtp], bundle)
    family = with_folder(bundle, tmp_path, "mtp")
    versions.require([mtp], family)
    found = speculative_config(mtp, family)
    assert found["model"] == str(tmp_path / "mtp")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (drafting("vllm_x", "eagle3", depth=2), "no setting 'depth': choose from parallel_dr"),
        (drafting("vllm_x", "medusa", depth=2), "medusa has no setting 'depth': choose from none"),
        (drafting("vllm_x", "eagle4"), "vLLM has no drafter 'eagle4'"),
    ],
)
def test_unknown_settings_are_refused_by_name(bundle: Bundle, spec, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        speculative_config(spec, bundle)


@pytest.mark.parametrize(
    ("part", "spec", "reason"),
    [
        ("peagle", get_method("vllm_peagle"), "setting parallel_drafting"),
        ("dflash", get_method("vllm_dflash"), "drafter dflash"),
        ("mtp", get_method("vllm_mtp"), "setting model"),
    ],
)
def test_some_drafters_share_no_engine(bundle, tmp_path, part, spec, reason):
    family = with_folder(bundle, tmp_path, part)
    with pytest.raises(ValueError, match=f"{spec.name} cannot share an engine.*{reason}"):
        shared.speculative_config([spec, get_method("vllm_naive")], family)


@pytest.mark.vllm
def test_vllm_has_our_drafters_and_the_fields_of_their_settings() -> None:
    from vllm.config import speculative as config

    assert set(FIELDS) <= {
        name
        for entry in get_args(config.SpeculativeMethod)
        for name in (get_args(entry) or (entry,))
    }
    fields = {field for names in FIELDS.values() for field in names.values()}
    assert fields <= set(config.SpeculativeConfig.__dataclass_fields__)
