"""The index of texts on disk, whose requests look up in it, and how it is replaced."""

import random
from pathlib import Path

import pytest
from indexes import longest_match

from schemas.config import DatastoreConfig
from workers.drafting.lookup import datastore
from workers.drafting.lookup.datastore import (
    AHEAD,
    CHECK_SECONDS,
    EXAMINED,
    MANIFEST,
    RETRY_SECONDS,
    SHORTEST,
    Corpus,
    Datastore,
    DatastoreError,
    write_corpus,
)

TOKENIZER, OTHER = "a" * 64, "b" * 64


def indexed(folder: Path, texts: list[list[int]]) -> Corpus:
    write_corpus(folder, texts, TOKENIZER)
    return Corpus.open(folder, TOKENIZER)


def test_the_longest_matches_are_found_with_what_follows(tmp_path: Path) -> None:
    draw = random.Random(1)
    texts = [[draw.randrange(4) for _ in range(draw.randrange(1, 90))] for _ in range(30)]
    texts += [texts[0] * 3, [2**31 - 1, 300, 70_000] * 40]
    index = indexed(tmp_path, texts)
    places = [(text, at) for text in texts for at in range(len(text) + 1)]
    for _ in range(150):
        text, at = draw.choice(places)
        pattern = [draw.randrange(4), *text[:at]][-draw.randrange(1, 100) :]
        matches = sorted((longest_match(text, at, pattern) for text, at in places), reverse=True)
        found = index.find(pattern)
        lengths = sorted((one.matched for one in found), reverse=True)
        assert lengths[:1] == [n for n in matches[:1] if n >= SHORTEST]
        assert len(lengths) <= EXAMINED
        for one in found:
            follow = tuple(one.text)
            assert one.start == 0
            assert any(
                longest_match(text, at, pattern) == one.matched
                and tuple(text[at : at + AHEAD]) == follow
                for text, at in places
            )


def test_nothing_is_found_across_the_border_of_two_texts(tmp_path: Path) -> None:
    index = indexed(tmp_path, [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert index.find([3, 4, 5]) == []
    [end] = index.find([2, 3, 4])
    assert (end.matched, tuple(end.text)) == (3, ())
    assert index.find([]) == index.find([6]) == []


def test_a_replaced_index_is_one_file_and_the_old_one_stays_readable(tmp_path: Path) -> None:
    old = indexed(tmp_path, [[1, 2, 3, 4]])
    new = indexed(tmp_path, [[1, 2, 3, 9]])
    assert len(list(tmp_path.iterdir())) == 2
    assert [tuple(index.find([1, 2, 3])[0].text) for index in (old, new)] == [(4,), (9,)]


def test_what_is_replaced_while_it_is_opened_is_opened_again(tmp_path: Path, monkeypatch) -> None:
    write_corpus(tmp_path, [[1, 2, 3, 4]], TOKENIZER)
    real, asked = datastore.read_manifest, []

    def replaced(folder: Path, tokenizer: str):
        manifest = real(folder, tokenizer)
        if not asked:
            write_corpus(folder, [[1, 2, 3, 9]], TOKENIZER)
        asked.append(folder)
        return manifest

    monkeypatch.setattr(datastore, "read_manifest", replaced)
    assert tuple(Corpus.open(tmp_path, TOKENIZER).find([1, 2, 3])[0].text) == (9,)


@pytest.mark.parametrize(
    ("pattern", "spoil", "says"),
    [
        (MANIFEST, lambda _: None, MANIFEST),
        (MANIFEST, lambda _: b"{}", "version"),
        (MANIFEST, lambda content: content[:9], "not JSON"),
        ("*.index", lambda _: None, ".index"),
        ("*.index", lambda _: b"", "cannot be read"),
        ("*.index", lambda content: content[:-8], "not as it was built"),
        ("*.index", lambda content: content[::-1], "not as it was built"),
    ],
)
def test_a_spoilt_index_is_refused_with_its_name_and_the_fix(tmp_path, pattern, spoil, says):
    write_corpus(tmp_path, [[1, 2, 3, 4]], TOKENIZER)
    [file] = tmp_path.glob(pattern)
    content = spoil(file.read_bytes())
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DatastoreError) as refused:
        Corpus.open(tmp_path, TOKENIZER)
    assert says in str(refused.value)
    assert "specadapt datastore build" in str(refused.value)


def test_an_index_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path, [[1, 2, 3, 4]], OTHER)
    with pytest.raises(DatastoreError, match="another tokenizer than the bundle's"):
        Corpus.open(tmp_path, TOKENIZER)


def test_what_cannot_be_indexed_is_refused(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DatastoreError, match="no text"):
        write_corpus(tmp_path / "new", [[]], TOKENIZER)
    monkeypatch.setattr(datastore, "MOST_TOKENS", 5)
    with pytest.raises(DatastoreError, match="more than 5 tokens"):
        write_corpus(tmp_path / "new", [[1, 2, 3], [4, 5, 6]], TOKENIZER)
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(DatastoreError, match="holds other files"):
        write_corpus(tmp_path, [[1, 2]], TOKENIZER)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.md"]


TEXT = list(range(100, 160))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(folder: Path, scopes: list[str] | None = None, clock=None) -> Datastore:
    if not (folder / MANIFEST).exists():
        write_corpus(folder, [TEXT], TOKENIZER)
    config = DatastoreConfig.model_validate({"folder": folder, "scopes": scopes})
    return Datastore(config, TOKENIZER, clock or Clock())


@pytest.mark.parametrize(
    ("scopes", "looks_up", "does_not"),
    [
        (None, ["", "tenant acme", "key app", "naive 0 128"], []),
        (
            ["tenant acme", "key a.p"],
            ["tenant acme", f"tenant acme {'0f' * 32}", "key a.p"],
            ["", "tenant acme corp", "tenant other", "key app", "key acme", "tenant acme x"],
        ),
    ],
)
def test_only_the_named_scopes_look_up(tmp_path: Path, scopes, looks_up, does_not) -> None:
    one = opened(tmp_path, scopes)
    assert all(one.find(scope, TEXT[:9]) for scope in looks_up)
    assert not any(one.find(scope, TEXT[:9]) for scope in does_not)


@pytest.mark.parametrize("scopes", [["acme"], []])
def test_a_scope_is_a_tenant_or_a_key(tmp_path: Path, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="scopes"):
        opened(tmp_path, scopes)


def test_a_replaced_index_is_used_without_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    one = opened(tmp_path, clock=clock)
    write_corpus(tmp_path, [[*TEXT[:9], 7]], TOKENIZER)
    assert one.follow() is None  # it is not due
    assert one.find("", TEXT[:9])[0].text[0] == TEXT[9]
    clock.now += CHECK_SECONDS
    loading = one.follow()
    loading.join(60)
    assert tuple(one.find("", TEXT[:9])[0].text) == (7,)
    clock.now += CHECK_SECONDS
    assert one.follow() is None  # nothing is new


@pytest.mark.parametrize("tokenizer", ["b" * 64, None])
def test_an_unusable_replacement_is_logged_and_the_index_in_use_stays(tmp_path, caplog, tokenizer):
    clock = Clock()
    one = opened(tmp_path, clock=clock)
    if tokenizer is None:
        (tmp_path / MANIFEST).write_text("spoilt")
    else:
        write_corpus(tmp_path, [[1, 2, 3]], tokenizer)
    clock.now += CHECK_SECONDS
    loading = one.follow()
    loading.join(60)
    assert "the index in use stays" in caplog.text
    assert one.find("", TEXT[:9])
    (tmp_path / MANIFEST).unlink()
    clock.now += RETRY_SECONDS
    assert one.follow() is None
    assert one.find("", TEXT[:9])


def test_a_replacement_that_could_not_be_read_is_tried_again(tmp_path: Path, caplog) -> None:
    clock = Clock()
    one = opened(tmp_path, clock=clock)
    write_corpus(tmp_path, [[*TEXT[:9], 7]], TOKENIZER)
    (index,) = tmp_path.glob("*.index")
    hidden = index.rename(tmp_path / "hidden")
    for wait, right in ((CHECK_SECONDS, False), (CHECK_SECONDS, None), (RETRY_SECONDS, True)):
        clock.now += wait
        loading = one.follow()
        assert (loading is None) == (right is None)
        if loading is not None:
            loading.join(60)
            assert (one.find("", TEXT[:9])[0].text[0] == 7) == right
            hidden.rename(index)
            hidden = index
    assert caplog.text.count("the index in use stays") == 1
