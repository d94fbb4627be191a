import hashlib
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from routing_world import ENCODER

from router.table import RoutingTableError, load_table, restrict, save_table
from schemas import RoutingTable


def test_a_table_survives_the_disk(table: RoutingTable, tmp_path: Path) -> None:
    save_table(table, tmp_path / "routing")
    loaded = load_table(tmp_path / "routing", ENCODER, table.settings_hashes)
    arrays = dict(loaded)
    for name, value in dict(table).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(arrays[name], value)
        elif name != "live":
            assert getattr(loaded, name) == value


def test_another_encoder_is_refused_with_both_named(table: RoutingTable, tmp_path: Path) -> None:
    save_table(table, tmp_path)
    other = ENCODER.model_copy(update={"sha256": "f" * 64})
    with pytest.raises(RoutingTableError, match=r"000000000000.*ffffffffffff"):
        load_table(tmp_path, other)


def test_other_settings_are_refused(table: RoutingTable, tmp_path: Path) -> None:
    save_table(table, tmp_path)
    with pytest.raises(RoutingTableError, match=r"ngram.*hash-ngram.*changed"):
        load_table(tmp_path, settings_hashes={"ngram": "changed", "unrelated": "x"})


def test_damage_is_named(table: RoutingTable, tmp_path: Path) -> None:
    with pytest.raises(RoutingTableError, match=r"routing\.json is missing"):
        load_table(tmp_path)
    save_table(table, tmp_path)
    body = json.loads((tmp_path / "routing.json").read_text())
    (tmp_path / "routing.json").write_text(json.dumps({**body, "methods": ["naive"]}))
    with pytest.raises(RoutingTableError, match=r"routing\.json"):
        load_table(tmp_path)
    (tmp_path / "routing.json").write_text("[]")
    with pytest.raises(RoutingTableError, match="expected a JSON object"):
        load_table(tmp_path)
    (tmp_path / "routing.json").write_text(json.dumps(body))
    with (tmp_path / "routing.npz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(RoutingTableError, match="does not belong"):
        load_table(tmp_path)


def with_arrays(folder: Path, table: RoutingTable, content: bytes) -> Path:
    """A saved table whose arrays are other bytes, and whose hash is right."""
    save_table(table, folder)
    body = json.loads((folder / "routing.json").read_text())
    body["arrays_sha256"] = hashlib.sha256(content).hexdigest()
    (folder / "routing.json").write_text(json.dumps(body))
    (folder / "routing.npz").write_bytes(content)
    return folder


def packed(**arrays: object) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda arrays: packed(**arrays)[:-40], "not an .npz file"),
        (lambda _: b"", "not an .npz file"),
        (lambda _: b"PK\x03\x04" + b"\0" * 99, "not an .npz file"),
        (lambda _: pickle.dumps({"centroids": 1}), "not an .npz file"),
        (lambda arrays: packed(**arrays, x=np.array([object()])), "not an .npz file"),
        (lambda arrays: packed(**arrays | {"speedup": np.zeros(3)}), "speedup has shape"),
        (lambda arrays: packed(**arrays | {"speedup": np.array(["x"])}), "speedup: .* not convert"),
        (lambda arrays: packed(**{n: a for n, a in arrays.items() if n != "speedup"}), "speedup"),
        (
            lambda arrays: packed(**arrays | {"speedup": arrays["speedup"] * np.inf}),
            "speedup holds NaN or infinity",
        ),
        (
            lambda arrays: packed(**arrays | {"step_seconds": arrays["step_seconds"] * np.nan}),
            "step_seconds holds NaN or infinity",
        ),
    ],
)
def test_broken_arrays_are_one_line(table, tmp_path, change, said):
    arrays = {n: v for n, v in dict(table).items() if isinstance(v, np.ndarray)}
    folder = with_arrays(tmp_path, table, change(arrays))
    with pytest.raises(RoutingTableError, match=said) as caught:
        load_table(folder)
    assert str(tmp_path) in str(caught.value)


def test_distances_of_other_clusters_are_refused(table: RoutingTable, tmp_path: Path) -> None:
    for distances, message in (
        (
            {"quantiles": [[0.5] * 21] * 4, "prompts": 9},
            "4 rows, the table has 2 clusters; fit again",
        ),
        ({"prompts": 9}, "distances of the fit are not readable.*fit again"),
        ({}, "distances of the fit are not readable"),
        ({"quantiles": 3, "prompts": 3}, "not rows of 21 rising quantiles"),
        ({"quantiles": [[1.0] * 21] * 2, "prompts": 0}, "not rows of 21 rising quantiles"),
    ):
        provenance = table.provenance | {"distances": distances}
        save_table(table.model_copy(update={"provenance": provenance}), tmp_path)
        with pytest.raises(RoutingTableError, match=message):
            load_table(tmp_path)


def test_restrict_keeps_what_is_served(table: RoutingTable) -> None:
    small = restrict(table, ["naive", "draft"])
    assert small.methods == ("naive", "draft")
    assert small.assignment == (("draft",) * 3,) * 2
    assert small.step_seconds.shape[0] == 2
    np.testing.assert_array_equal(small.acceptance_tokens, table.acceptance_tokens[:, :2])
    only = restrict(table, ["ngram"])
    assert only.default_method == "ngram"
    with pytest.raises(RoutingTableError, match="medusa"):
        restrict(table, ["naive", "medusa"])


def test_what_an_earlier_version_stored_of_serving_is_left_out(table, tmp_path):
    arrays = {n: v for n, v in dict(table).items() if isinstance(v, np.ndarray)}
    folder = with_arrays(tmp_path, table, packed(**arrays, live_tokens=np.zeros(3)))
    assert load_table(folder).fit_id == table.fit_id
