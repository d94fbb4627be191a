"""Versions of heads: they exist whole or not at all, and no change of what serves is lost."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import fsspec
import pytest
from stored_heads import TARGET, head, origin, store
from stores import Bucket

from deployments.head_training import versions
from deployments.head_training.versions import UnknownVersionError
from deployments.learning import state_store
from schemas import Canary, HeadsInForce

_buckets = itertools.count()


@pytest.fixture(params=["folder", "bucket"])
def uri(request, tmp_path):
    if request.param == "folder":
        return str(tmp_path / "state")
    return f"{Bucket.protocol}://versions-{next(_buckets)}/state"


def test_a_target_that_takes_over_the_name_begins_without_versions(tmp_path):
    uri = str(tmp_path / "state")
    kept, new = store(uri), store(uri, target="ba9876543210")
    kept.promote(kept.add(head(tmp_path / "head"), origin()).number)
    assert (new.all(), new.in_force()) == ([], HeadsInForce())
    assert store(uri).in_force().number("eagle3") == 1


def test_a_version_comes_back_as_it_was_added(uri, tmp_path):
    first = store(uri, tmp_path / "cache")
    assert first.all() == []
    added = [
        first.add(head(tmp_path / part, part.encode()), origin(part, parent))
        for part, parent in (("eagle3", 0), ("medusa", 0), ("eagle3", 1))
    ]
    assert [version.number for version in added] == [1, 2, 3]
    other = store(uri, tmp_path / "cache")
    assert other.all() == added[::-1]
    assert other.get(2) == added[1]
    for version in added:
        folder = other.folder(version.number)
        assert (folder / "model.safetensors").read_bytes() == version.part.encode()
        assert (folder / "config.json").read_text() == "{}"
    with pytest.raises(UnknownVersionError, match=r"no version 4 in .*\(there are 3, 2, 1\)"):
        other.folder(4)
    assert other.in_force() == HeadsInForce()


@pytest.mark.parametrize(("error", "numbers"), [(KeyboardInterrupt, [2, 3]), (OSError, [1, 2])])
def test_a_writer_that_does_not_end_leaves_no_version(uri, tmp_path, monkeypatch, error, numbers):
    """A killed one's number is not used again, so that no replica mixes the files of two heads."""

    def fails(*_):
        raise error("the store is away")

    one = store(uri)
    with monkeypatch.context() as patched:
        patched.setattr(versions, "replace_file", fails)
        with pytest.raises(error):
            one.add(head(tmp_path / "head"), origin())
    assert one.all() == []
    with pytest.raises(UnknownVersionError):
        one.promote(1)
    monkeypatch.setattr(versions, "KEPT", 2)
    assert [one.add(tmp_path / "head", origin()).number for _ in range(2)] == numbers
    assert one._numbers(versions._VERSION) == numbers, "what was left is removed, and no version"


def test_promotion_canaries_and_rollback(uri, tmp_path):
    one, folder = store(uri), head(tmp_path / "head")
    for part, parent in (("eagle3", 0), ("eagle3", 1), ("medusa", 0)):
        one.add(folder, origin(part, parent))
    one.promote(3)
    heads = one.try_out(1, 0.1)
    assert heads.numbers == {"eagle3": 0, "medusa": 3}
    assert heads.canaries == {"eagle3": Canary(number=1, share=0.1)}
    assert one.promote(1).canaries == {}
    one.try_out(2, 0.5)
    assert one.roll_back("eagle3").numbers["eagle3"] == 1, "a canary ends first"
    one.promote(2)
    assert one.pause(True).paused
    assert [one.roll_back("eagle3").number("eagle3") for _ in range(2)] == [1, 0]
    with pytest.raises(ValueError, match="eagle3: the bundle's own head is active"):
        one.roll_back("eagle3")
    heads = store(uri).in_force()
    assert (heads.revision, heads.paused, heads.number("medusa")) == (9, True, 3)
    assert not one.pause(False).paused
    with pytest.raises(UnknownVersionError):
        one.try_out(9, 0.1)


def test_a_decision_on_what_is_no_longer_in_force_is_dropped(uri, tmp_path):
    one = store(uri)
    for parent in (0, 1):
        one.add(head(tmp_path / "head"), origin(parent=parent))
    one.promote(1)
    seen = one.try_out(2, 0.1)
    ended = store(uri).roll_back("eagle3")
    assert one.roll_back("eagle3", seen) == one.promote(2, seen) == ended
    assert one.promote(2, ended).number("eagle3") == 2


def test_changes_of_several_processes_are_all_kept(uri, tmp_path):
    """Each of four writers promotes its own part, and pauses last."""
    folder, parts = head(tmp_path / "head"), ("eagle3", "eagle", "medusa")
    for part in parts:
        store(uri).add(folder, origin(part))
    ready = threading.Barrier(4)

    def write(number: int) -> None:
        mine = store(uri)
        ready.wait()
        if number:
            mine.promote(number)
        else:
            mine.pause(True)

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    heads = store(uri).in_force()
    assert heads.numbers == {"eagle3": 1, "eagle": 2, "medusa": 3}
    assert (heads.paused, heads.revision) == (True, 4)


def test_an_unreadable_revision_is_passed_over(tmp_path):
    one = store(str(tmp_path / "state"))
    one.pause(True)
    (tmp_path / f"state/drafters/tiny/versions/{TARGET}/in-force-00000002.json").write_text("{")
    assert one.in_force().paused
    assert one.pause(False).revision == 3
    assert not one.in_force().paused


def test_old_versions_go_but_those_that_serve_stay(uri, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "KEPT", 2)
    one, folder = store(uri), head(tmp_path / "head")
    for _ in range(2):
        one.add(folder, origin())
    one.promote(1)
    one.try_out(2, 0.1)
    for _ in range(3):
        one.add(folder, origin())
    assert [version.number for version in one.all()] == [5, 4, 2, 1]
    one.roll_back("eagle3")
    for paused in (True, False) * 2:
        one.pause(paused)
    assert len(one._numbers(versions._REVISION)) == 3


def test_a_remote_version_is_downloaded_once(tmp_path):
    remote = f"{Bucket.protocol}://versions-{next(_buckets)}/state"
    one = store(remote, tmp_path / "cache")
    for number in range(1, 5):
        one.add(head(tmp_path / f"head-{number}", bytes([number])), origin())
    folders = [one.folder(number) for number in range(1, 5)]
    assert [folder.is_dir() for folder in folders] == [False, False, False, True]
    (folders[3] / "mark").touch()
    assert (store(remote, tmp_path / "cache").folder(4) / "mark").exists()
    assert (one.folder(1) / "model.safetensors").read_bytes() == b"\x01"
    one.promote(1)
    one.try_out(2, 0.1)
    folders = [one.folder(number) for number in range(1, 5)]
    assert [folder.is_dir() for folder in folders] == [True, True, False, True], "those in service"


def test_a_head_of_an_emptied_store_is_not_served_again(tmp_path):
    remote = f"{Bucket.protocol}://versions-{next(_buckets)}/state"
    one = store(remote, tmp_path / "cache")
    one.add(head(tmp_path / "old", b"old"), origin())
    assert (one.folder(1) / "model.safetensors").read_bytes() == b"old"
    fsspec.filesystem(Bucket.protocol).rm(remote, recursive=True)
    later = origin().model_copy(update={"created": 2.0})
    one.add(head(tmp_path / "new", b"new"), later)
    assert (one.folder(1) / "model.safetensors").read_bytes() == b"new"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_created_once(tmp_path, monkeypatch, links):
    """Also on mounts without hard links."""

    def unsupported(*_: object) -> None:
        raise PermissionError("no links here")

    if not links:
        monkeypatch.setattr(state_store.os, "link", unsupported)
    fs, path = fsspec.filesystem("file"), str(tmp_path / "file")
    state_store.create_file(fs, path, b"first")
    with pytest.raises(FileExistsError):
        state_store.create_file(fs, path, b"second")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file", b"first")]
