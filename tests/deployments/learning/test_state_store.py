"""The state survives owners that die, write late or write half."""

import threading
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stores import Bucket

from deployments.learning import state_store
from deployments.learning.state_store import StateStore, SupersededError


def store(folder):
    return StateStore(str(folder))


def test_an_older_owner_that_starts_again_does_not_take_over(tmp_path):
    """Of a deployment that is being replaced, say; the newer one that starts again does."""
    old, new = StateStore(str(tmp_path), "old"), StateStore(str(tmp_path), "new")
    old.claim()
    new.claim()
    new.save({"by": "new"})
    again = StateStore(str(tmp_path), "old")
    with pytest.raises(SupersededError):
        again.claim()
    assert again.read() == {"by": "new"}
    new.save({"by": "new, later"})
    restarted = StateStore(str(tmp_path), "new")
    assert restarted.claim() == {"by": "new, later"}
    assert restarted.epoch > new.epoch
    with pytest.raises(SupersededError):
        new.save({"by": "new, before it was started again"})


def test_an_older_owner_that_writes_without_looking_finds_its_number_taken(tmp_path, monkeypatch):
    """The look and the write are not one operation: as if the claim came in between."""
    old, new = store(tmp_path), store(tmp_path)
    old.claim()
    new.claim()
    monkeypatch.setattr(old, "_cleared_away", lambda: False)
    with pytest.raises(SupersededError):
        old.save({"by": "old"})
    new.save({"by": "new"})
    assert store(tmp_path).claim() == {"by": "new"}


def test_a_write_that_came_through_although_its_call_failed_is_the_owners_own(
    tmp_path, monkeypatch
):
    owner = store(tmp_path)
    owner.claim()
    create = state_store.create_file

    def failing(*given):
        create(*given)
        raise OSError("connection reset")

    with monkeypatch.context() as patched:
        patched.setattr(state_store, "create_file", failing)
        with pytest.raises(OSError, match="reset"):
            owner.save({"version": 1})
    owner.save({"version": 2})
    assert store(tmp_path).claim() == {"version": 2}


def test_of_many_saves_two_files_stay_and_the_claims(tmp_path):
    for _ in range(2):
        owner = store(tmp_path)
        owner.claim()
        for number in range(9):
            owner.save({"version": number})
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize(
    "text", ['{"version": ', "[1]", '"x"', '{"version": 2, "x": NaN}', '{"version": "x"}', "\0"]
)
def test_what_is_no_state_gives_way_to_the_one_before(tmp_path, text):
    first = store(tmp_path)
    first.claim()
    first.save({"version": 1})
    second = store(tmp_path)
    second.claim()
    (tmp_path / f"state-{second.epoch:010d}.json").write_text(text)
    assert store(tmp_path).claim() == {"version": 1}


def test_owners_that_claim_at_once_get_epochs_of_their_own(tmp_path):
    store(tmp_path).claim()
    stores = [store(tmp_path) for _ in range(8)]

    def claim(one):
        with suppress(SupersededError):
            one.claim()

    threads = [threading.Thread(target=claim, args=(one,)) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.epoch for one in stores}) == len(stores)
    newest = max(stores, key=lambda one: one.epoch)
    newest.save({"by": "newest"})
    assert store(tmp_path).claim() == {"by": "newest"}


@pytest.mark.parametrize("scheme", ["", "memory:/", f"{Bucket.protocol}:/"])
@settings(deadline=None, max_examples=15)
@given(steps=st.lists(st.sampled_from(["claim", "save", "late"]), max_size=12))
@example(steps=["save", "claim", "save", "late"])
def test_the_newest_owners_last_save_is_what_counts(tmp_path_factory, scheme, steps):
    folder = f"{scheme}{tmp_path_factory.mktemp('state')}"
    owners = [store(folder)]
    owners[0].claim()
    expected = None
    for number, step in enumerate(steps):
        if step == "claim":
            owners.append(store(folder))
            assert owners[-1].claim() == expected
        elif step == "save":
            expected = {"number": number}
            owners[-1].save(expected)
        elif len(owners) > 1:
            with pytest.raises(SupersededError):
                owners[0].save({"number": number})
    assert store(folder).claim() == expected
