"""Methods' drafters and settings as vLLM's speculative_config, and what is refused."""

from pathlib import Path

import pytest
from deployed_drafters import drafting, with_part

from workers.bundle import Bundle, BundleError
from workers.methods import get_method
from workers.vllm_engine import shared, versions
from workers.vllm_engine.speculation import speculative_config


def with_folder(bundle: Bundle, folder: Path, part: str) -> Bundle:
    (folder / part).mkdir()
    return with_part(bundle, folder, part)


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
