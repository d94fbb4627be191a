"""Whose requests look up in a datastore, how it is replaced, and what is learned of it."""

from pathlib import Path

import pytest

from schemas.config import DatastoreConfig
from workers.drafting.lookup.datastore import (
    CHECK_SECONDS,
    MANIFEST,
    RETRY_SECONDS,
    Datastore,
    DatastoreError,
    write_corpus,
)
from workers.drafting.lookup.look_ups import LookUps
from workers.drafting.lookup.past import PastAnswers

TOKENIZER = "a" * 64
TEXT = list(range(100, 160))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def datastore(folder: Path, scopes: list[str] | None = None, clock=None) -> Datastore:
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
    one = datastore(tmp_path, scopes)
    assert all(one.find(scope, TEXT[:9]) for scope in looks_up)
    assert not any(one.find(scope, TEXT[:9]) for scope in does_not)


@pytest.mark.parametrize("scopes", [["acme"], []])
def test_a_scope_is_a_tenant_or_a_key(tmp_path: Path, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match="scopes"):
        datastore(tmp_path, scopes)


def test_a_replaced_index_is_used_without_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    one = datastore(tmp_path, clock=clock)
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
    one = datastore(tmp_path, clock=clock)
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
    one = datastore(tmp_path, clock=clock)
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


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatastoreError, match=r"datastore\.json"):
        Datastore(DatastoreConfig(folder=tmp_path / "none"), TOKENIZER)


def steps(one: LookUps, answer: list[int]) -> int:
    """Return the steps of an answer, all of whose looked-up tokens are verified."""
    text, count, at = [1, 2, *TEXT[:4]], 0, 0
    one.begin("text", text, "", greedy=True)
    while at < len(answer):
        found, accepted = one.look_up("text", 8).tokens, 0
        while [*found[: accepted + 1]] == answer[at : at + accepted + 1] and accepted < len(found):
            accepted += 1
        emitted = answer[at : at + accepted + 1]
        one.learn("text", emitted, len(found))
        text += emitted
        at, count = at + len(emitted), count + 1
    return count


def test_what_an_answer_quotes_is_looked_up(tmp_path: Path) -> None:
    answer = [*TEXT[4:40], 1]
    known = LookUps(least=0.02, past=PastAnswers(), datastore=datastore(tmp_path))
    assert steps(known, answer) < 10
    assert steps(LookUps(least=0.02, past=PastAnswers()), answer) == len(answer)
