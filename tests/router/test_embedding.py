"""The encoder that ships."""

import hashlib

import numpy as np
import pytest
from tokenizers import Tokenizer

from router.embed import SHIPPED, Encoder, EncoderMissingError, encoder_dir

PROMPTS = [
    "Write a haiku about autumn leaves.",
    "def add(a, b):\n    return a + b\n\nRename the function to `plus` and add a docstring.",
    "If 3 pens cost 4.50, what do 7 pens cost?",
    "I need a taxi to the airport tomorrow at 6 am.",
    "¿Cómo se dice 'good morning' en japonés?",
    "word " * 400,
]


ENCODER = Encoder()


def test_the_shipped_vectors_are_sums_of_token_vectors() -> None:
    table = np.load(SHIPPED / "vectors.npy").astype(np.float64)
    ids = Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).encode("the two boats").ids[1:-1]
    expected = table[ids].sum(axis=0)
    found = ENCODER.embed(["the two boats"])[0]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-5)
    assert not ENCODER.embed([""]).any()


def test_the_shipped_encoder_has_the_identity_of_its_files() -> None:
    digest = hashlib.sha256((SHIPPED / "vectors.npy").read_bytes())
    digest.update((SHIPPED / "tokenizer.json").read_bytes())
    assert Encoder().info.sha256 == digest.hexdigest()


def test_a_vector_does_not_depend_on_its_batch() -> None:
    together = ENCODER.embed(PROMPTS)
    assert (together.dtype, together.shape) == (np.float32, (len(PROMPTS), 128))
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-4)
    alone = np.concatenate([ENCODER.embed([p]) for p in PROMPTS])
    np.testing.assert_array_equal(together, alone)
    assert ENCODER.embed([]).shape == (0, ENCODER.info.dimension)
    assert np.isfinite(ENCODER.embed([""])).all()


def test_text_beyond_the_encoders_tokens_does_not_count() -> None:
    long = "apple " * 300
    np.testing.assert_array_equal(ENCODER.embed([long]), ENCODER.embed([long + "banana " * 50]))


def test_tokens_are_counted_beyond_what_the_encoder_reads() -> None:
    assert ENCODER.max_tokens == 256
    assert ENCODER.token_count("apple " * 300) == 302
    assert ENCODER.token_count("") == 2


def test_a_missing_encoder_names_the_setting(tmp_path, monkeypatch):
    with pytest.raises(EncoderMissingError, match=r"leave router\.encoder .* out"):
        Encoder(tmp_path)
    monkeypatch.setenv("SPECADAPT_ENCODER", str(tmp_path / "here"))
    assert encoder_dir() == tmp_path / "here"
    monkeypatch.delenv("SPECADAPT_ENCODER")
    assert encoder_dir() == SHIPPED


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("encoder.json", r"encoder\.json is not readable"),
        ("vectors.npy", r"cannot be read .*leave router\.encoder"),
        ("tokenizer.json", r"cannot be read .*leave router\.encoder"),
    ],
)
def test_a_damaged_encoder_counts_as_missing(tmp_path, file, said):
    """The service goes on without one, and a command says what to do in one line."""
    for other in SHIPPED.iterdir():
        (tmp_path / other.name).symlink_to(other)
    (tmp_path / file).unlink()
    kept = b'{"info": {"name": "x"}}' if file == "encoder.json" else b""
    (tmp_path / file).write_bytes(kept or (SHIPPED / file).read_bytes()[:1000])
    with pytest.raises(EncoderMissingError, match=said):
        Encoder(tmp_path)
