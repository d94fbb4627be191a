"""`bench geometry`: the engine's own forward on random weights."""

import pytest


def test_a_row_per_shape(specadapt):
    figures = specadapt.json("bench", "geometry", "--shapes", "64x1,128x2", "--dtype", "float32")
    assert [row["shape"] for row in figures["shapes"]] == ["64x1", "128x2"]
    for row in figures["shapes"]:
        assert row["step_ms"] > 0
        assert {"verify_8", "verify_17", "verify_33", "batch_8", "one_layer"} <= row.keys()
    assert figures["settings"]["threads"] == 1


@pytest.mark.parametrize("shapes", ["320", "axb", "0x4", "100x2", "64x1,"])
def test_a_wrong_shape_is_named(specadapt, shapes):
    assert "--shapes" in specadapt.refusal("bench", "geometry", "--shapes", shapes)


@pytest.mark.parametrize("dtype", ["auto", "int8"])
def test_random_weights_have_a_plain_precision(specadapt, dtype):
    assert "--dtype" in specadapt.refusal("bench", "geometry", "--dtype", dtype)
