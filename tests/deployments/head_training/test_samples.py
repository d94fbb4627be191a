"""Samples at rest: they survive kills and lost stores, and are deleted when they have to be."""

import gzip
from pathlib import Path

import fsspec
import pytest
from asking import Clock
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import sample

from deployments.head_training.samples import OVERDUE, TIDY_SECONDS, Samples
from schemas import FeedbackConfig

HOUR = 3600.0


class KilledError(BaseException):
    """The process ends here."""


class Dying(MemoryFileSystem):
    """A store in memory whose user is killed before the write or removal that `left` counts to."""

    protocol = "dying"
    store, pseudo_dirs = {}, [""]
    left = None

    def _step(self):
        if Dying.left is not None:
            Dying.left -= 1
            if Dying.left < 0:
                raise KilledError

    def pipe_file(self, path, value, **kwargs):
        self._step()
        super().pipe_file(path, value, **kwargs)

    def rm_file(self, path):
        self._step()
        super().rm_file(path)


fsspec.register_implementation("dying", Dying, clobber=True)


@pytest.fixture
def clock():
    made = Clock()
    made.now = 1000.0
    return made


@pytest.fixture
def opened(tmp_path, clock):
    """Make samples of one folder, as a process that starts does."""

    def make(target="target", **fields):
        feedback = FeedbackConfig(state_uri=str(tmp_path / "state"), retain_hours=2.0, **fields)
        made = Samples(feedback, "tiny", target, clock)
        made.take()
        return made

    return make


def ids(samples):
    return {each.id for each in samples.kept()}


def files(samples):
    return sorted(Path(samples.uri).iterdir())


def test_another_process_goes_on_with_them(opened):
    first = opened()
    made = [sample("a", tokens=2000, temperature=0.5), sample("b", cluster=-1, owner="")]
    first.take(made[:1])
    first.take(made[1:])
    assert len(files(first)) == 2
    second = opened()
    made = [each.model_copy(update={"target": "target"}) for each in made]
    assert sorted(second.kept(), key=lambda each: each.id) == made
    [file] = files(second)
    assert len(gzip.decompress(file.read_bytes()).splitlines()) == 2
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_expired_samples_are_deleted(opened, clock):
    samples = opened()
    samples.take([sample("old", time=clock.now), sample("new", time=clock.now + HOUR)])
    clock.now += 2 * HOUR
    assert ids(samples) == {"new"}
    samples.take()
    [file] = files(samples)
    assert b"old" not in gzip.decompress(file.read_bytes())
    clock.now += HOUR
    samples.take([sample("late", time=clock.now - 2 * HOUR)])
    assert not files(samples)
    assert not ids(opened())


def test_answers_of_another_target_are_deleted(opened):
    opened(target="old").take([sample("a")])
    new = opened(target="new")
    new.take([sample("b")])
    assert ids(new) == {each.id for each in new.stored()} == {"b"}
    for file in files(new):
        assert b'"a"' not in gzip.decompress(file.read_bytes())


def test_an_owner_is_erased_also_from_a_process_that_is_running(opened, clock):
    running = opened()
    running.take([sample("a"), sample("b", owner="tenant other"), sample("c", owner="key acme")])
    opened().erase("tenant acme")
    for file in files(running):
        if file.name.endswith(".gz"):
            assert b'"a"' not in gzip.decompress(file.read_bytes())
    running.take([sample("d", owner="tenant other")])
    clock.now += TIDY_SECONDS
    running.take([sample("after", time=clock.now), sample("on its way")])
    assert ids(running) == ids(opened()) == {"b", "c", "d", "after"}
    clock.now += OVERDUE * 2 * HOUR + 1.0
    running.take()
    assert not files(running), "the mark goes once nothing can be as old"


def test_a_store_that_is_away_is_waited_for(opened, caplog):
    samples = opened()
    samples.take([sample("a")])
    folder = Path(samples.uri)
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")
    for name in "bc":
        samples.take([sample(name)])
    assert caplog.text.count("new samples may be in memory only") == 1
    folder.unlink()
    folder.with_name("aside").rename(folder)
    samples.take()
    assert ids(opened()) == {"a", "b", "c"}


def test_only_usable_samples_count_as_stored(opened, clock):
    running = opened()
    old = sample("old", time=clock.now - 2 * HOUR + 2.0)
    running.take([old, sample("new", time=clock.now)])
    clock.now += 1.0
    opened().erase("tenant other")
    running.take([sample("erased", time=clock.now, owner="tenant other")])
    assert ids(running) == {"old", "new", "erased"}, "it has not noticed the erasure"
    clock.now += 1.0
    assert [each.id for each in running.stored()] == ["new"]


def test_damaged_and_half_written_files_are_removed(opened, caplog):
    first = opened()
    first.take([sample("a")])
    folder = Path(first.uri)
    whole = files(first)[0].read_bytes()
    (folder / "samples-0.jsonl.gz").write_bytes(whole[:-9])
    (folder / "samples-1.jsonl.gz").write_bytes(gzip.compress(b'{"id": "b", "x": "secret"}'))
    (folder / "samples-2.jsonl.gz.0.tmp").write_bytes(whole[:9])
    (folder / "erased-0.json").write_text("{")
    assert ids(opened()) == {"a"}
    assert caplog.text.count("unreadable and will be removed") == 2
    assert "secret" not in caplog.text, "errors quote no text"
    assert "erase again" in caplog.text
    mark, samples = files(first)
    assert mark.name == "erased-0.json"
    assert samples.name.endswith(".jsonl.gz")


actions = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 2)),
    st.tuples(st.just("tidy"), st.just(0)),
    st.tuples(st.just("erase"), st.integers(0, 2)),
    st.tuples(st.just("kill"), st.integers(0, 3)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=20))
def test_whenever_it_is_killed_nothing_taken_is_lost_and_nothing_erased_comes_back(steps):
    """A killed process may have stored what it was about to, or not."""
    Dying.store.clear()
    Dying.left = None
    clock = Clock()
    feedback = FeedbackConfig(state_uri="dying://state")
    samples = Samples(feedback, "tiny", "target", clock)
    taken, erased = set(), set()
    for step, (action, number) in enumerate(steps):
        clock.now += 1.0
        owner, name = f"tenant {number}", f"{number} {step}"
        try:
            if action == "take":
                samples.take([sample(name, owner=owner, time=clock.now)])
                taken.add(name)
            elif action == "erase":
                samples.erase(owner)
                gone = {each for each in taken if each.startswith(f"{number} ")}
                taken, erased = taken - gone, erased | gone
            elif action == "tidy":
                clock.now += TIDY_SECONDS
                samples.take()
            else:
                Dying.left = number
        except KilledError:
            Dying.left = None
            samples = Samples(feedback, "tiny", "target", clock)
            samples.take()
            unsure = set()
            if action == "take":
                unsure = {name}
            elif action == "erase":
                unsure = {each for each in taken if each.startswith(f"{number} ")}
            assert taken - unsure <= ids(samples) <= (taken | unsure) - erased
            taken = ids(samples)
        assert ids(samples) == taken
