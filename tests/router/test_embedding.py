"""The encoder that ships, and the one it was distilled from, exported once per session."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from router.embed import SHIPPED, Encoder, EncoderMissingError, encoder_dir
from router.fit.encoder_export import (
    CHECK_TEXTS,
    export_encoder,
    source_folder,
)

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


@pytest.fixture(params=["shipped", "exported"])
def encoder(request: pytest.FixtureRequest, exported: Path) -> Encoder:
    return Encoder(exported if request.param == "exported" else SHIPPED)


def test_vectors_agree_with_sentence_transformers(exported: Path) -> None:
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(source_folder()), device="cpu").encode(
        PROMPTS, normalize_embeddings=True, batch_size=1, show_progress_bar=False
    )
    vectors = Encoder(exported).embed(PROMPTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(PROMPTS), 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-4)
    assert (vectors * reference).sum(axis=1).min() >= 0.98


def test_the_shipped_vectors_are_ordered_by_similarity_as_those_they_were_distilled_from(
    exported: Path,
) -> None:
    small, large = Encoder(), Encoder(exported)
    vectors = small.embed(PROMPTS)
    assert (vectors.dtype, vectors.shape) == (np.float32, (len(PROMPTS), 128))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-4)
    # How similar each text is to the others, told by one encoder and by the other.
    pairs = np.triu_indices(len(CHECK_TEXTS), k=1)
    told = [(v @ v.T)[pairs] for v in (e.embed(CHECK_TEXTS) for e in (small, large))]
    assert np.corrcoef(*told)[0, 1] > 0.7


def test_the_shipped_vectors_are_sums_of_token_vectors() -> None:
    encoder = Encoder()
    table = np.load(SHIPPED / "vectors.npy").astype(np.float64)
    ids = Tokenizer.from_file(str(SHIPPED / "tokenizer.json")).encode("the two boats").ids[1:-1]
    expected = table[ids].sum(axis=0)
    found = encoder.embed(["the two boats"])[0]
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-5)
    assert not encoder.embed([""]).any()


def test_the_shipped_encoder_has_the_identity_of_its_files() -> None:
    digest = hashlib.sha256((SHIPPED / "vectors.npy").read_bytes())
    digest.update((SHIPPED / "tokenizer.json").read_bytes())
    assert Encoder().info.sha256 == digest.hexdigest()


def test_a_vector_does_not_depend_on_its_batch(encoder: Encoder) -> None:
    together = encoder.embed(PROMPTS)
    alone = np.concatenate([encoder.embed([p]) for p in PROMPTS])
    np.testing.assert_array_equal(together, alone)
    assert encoder.embed([]).shape == (0, encoder.info.dimension)
    assert np.isfinite(encoder.embed([""])).all()


def test_text_beyond_the_encoders_tokens_does_not_count(encoder: Encoder) -> None:
    long = "apple " * 300
    np.testing.assert_array_equal(encoder.embed([long]), encoder.embed([long + "banana " * 50]))


def test_tokens_are_counted_beyond_what_the_encoder_reads(encoder: Encoder) -> None:
    assert encoder.max_tokens == 256
    assert encoder.token_count("apple " * 300) == 302
    assert encoder.token_count("") == 2


def test_a_missing_encoder_names_the_command(tmp_path, monkeypatch):
    with pytest.raises(EncoderMissingError, match="specadapt export-encoder"):
        Encoder(tmp_path)
    monkeypatch.setenv("SPECADAPT_ENCODER", str(tmp_path / "here"))
    assert encoder_dir() == tmp_path / "here"
    monkeypatch.delenv("SPECADAPT_ENCODER")
    assert encoder_dir() == SHIPPED


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("encoder.json", r"encoder\.json is not readable"),
        ("model.onnx", r"cannot be read .*specadapt export-encoder"),
        ("vectors.npy", r"cannot be read .*specadapt export-encoder"),
        ("tokenizer.json", r"cannot be read .*specadapt export-encoder"),
    ],
)
def test_a_damaged_encoder_counts_as_missing(exported, tmp_path, file, said):
    """The service goes on without one, and a command says what to do in one line."""
    source = SHIPPED if file == "vectors.npy" else exported
    for other in source.iterdir():
        (tmp_path / other.name).symlink_to(other)
    (tmp_path / file).unlink()
    kept = b'{"info": {"name": "x"}}' if file == "encoder.json" else b""
    (tmp_path / file).write_bytes(kept or (source / file).read_bytes()[:1000])
    with pytest.raises(EncoderMissingError, match=said):
        Encoder(tmp_path)
