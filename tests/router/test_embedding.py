"""The real encoder: exported once per session from the packaged weights."""

from pathlib import Path

import numpy as np
import pytest

from router.embed import Encoder, EncoderMissingError, encoder_dir
from router.fit.encoder_export import EncoderExportError, export_encoder, resolve_source

PROMPTS = [
    "Write a haiku about autumn leaves.",
    "def add(a, b):\n    return a + b\n\nRename the function to `plus` and add a docstring.",
    "If 3 pens cost 4.50, what do 7 pens cost?",
    "I need a taxi to the airport tomorrow at 6 am.",
    "¿Cómo se dice 'good morning' en japonés?",
    "word " * 400,
]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("encoder")
    export_encoder(out)
    return out


def test_vectors_agree_with_sentence_transformers(exported: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(resolve_source()), device="cpu").encode(
        PROMPTS, normalize_embeddings=True, batch_size=1, show_progress_bar=False
    )
    vectors = Encoder(exported).embed(PROMPTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(PROMPTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-4)
    assert (vectors * reference).sum(axis=1).min() >= 0.98


def test_a_vector_does_not_depend_on_its_batch(exported: Path) -> None:
    encoder = Encoder(exported)
    together = encoder.embed(PROMPTS)
    alone = np.concatenate([encoder.embed([p]) for p in PROMPTS])
    np.testing.assert_array_equal(together, alone)
    assert encoder.embed([]).shape == (0, 384)
    assert np.isfinite(encoder.embed([""])).all()


def test_text_beyond_the_encoders_tokens_does_not_count(exported: Path) -> None:
    encoder = Encoder(exported)
    long = "apple " * 300
    np.testing.assert_array_equal(encoder.embed([long]), encoder.embed([long + "banana " * 50]))


def test_tokens_are_counted_beyond_what_the_encoder_reads(exported: Path) -> None:
    encoder = Encoder(exported)
    assert encoder.max_tokens == 256
    assert encoder.token_count("apple " * 300) == 302
    assert encoder.token_count("") == 2


def test_a_missing_encoder_names_the_command(tmp_path, monkeypatch):
    with pytest.raises(EncoderMissingError, match="specadapt export-encoder"):
        Encoder(tmp_path)
    monkeypatch.setenv("SPECADAPT_ENCODER", str(tmp_path / "here"))
    assert encoder_dir() == tmp_path / "here"
    monkeypatch.delenv("SPECADAPT_ENCODER")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert encoder_dir() == tmp_path / "specadapt" / "encoder"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("encoder.json", r"encoder\.json is not readable"),
        ("model.onnx", r"cannot be read .*specadapt export-encoder"),
        ("tokenizer.json", r"cannot be read .*specadapt export-encoder"),
    ],
)
def test_a_damaged_encoder_counts_as_missing(exported, tmp_path, file, said):
    """The service goes on without one, and a command says what to do in one line."""
    for other in exported.iterdir():
        (tmp_path / other.name).symlink_to(other)
    (tmp_path / file).unlink()
    kept = b'{"info": {"name": "x"}}' if file == "encoder.json" else b""
    (tmp_path / file).write_bytes(kept or (exported / file).read_bytes()[:1000])
    with pytest.raises(EncoderMissingError, match=said):
        Encoder(tmp_path)


def test_a_source_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderExportError, match=r"model\.safetensors"):
        export_encoder(tmp_path / "out", tmp_path / "empty")
