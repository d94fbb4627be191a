"""The bounded selection of samples: its size, its fairness among clusters, and its uniformity."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from sampled import sample

from deployments.head_training.samples import Reservoir

ROOM = 600
arrivals = st.lists(st.tuples(st.integers(-1, 3), st.integers(2, 200)), max_size=60)


def filled(made, room=ROOM):
    reservoir = Reservoir(room)
    for each in made:
        reservoir.add(each)
    return reservoir


def samples(arrived):
    return [sample(f"s{i}", size, cluster=c) for i, (c, size) in enumerate(arrived)]


@given(arrivals)
def test_it_is_bounded_and_full(arrived):
    made = samples(arrived)
    reservoir = filled(made)
    kept = list(reservoir)
    room = sum(each.size for each in kept)
    assert room <= ROOM
    assert set(kept) <= set(made)
    if len(kept) < len(made):
        assert room > ROOM - 200, "no more is dropped than has to be"


@given(arrivals, st.randoms())
def test_a_cluster_that_needs_no_more_than_an_even_share_keeps_everything(arrived, random):
    made = samples(arrived)
    asked = Counter[int]()
    for each in made:
        asked[each.cluster] += each.size
    random.shuffle(made)
    reservoir = filled(made)
    for each in made:
        if asked[each.cluster] <= ROOM / len(asked):
            assert each in set(reservoir)


@given(st.permutations(range(20)))
def test_within_a_cluster_the_order_of_arrival_does_not_matter(order):
    made = [sample(f"s{i}") for i in range(20)]
    assert set(filled(made[i] for i in order)) == set(filled(made))


def test_a_sample_without_room_and_one_that_is_there_change_nothing():
    made = samples([(0, 200), (0, 200)])
    reservoir = filled([*made, sample("giant", ROOM + 1), *made])
    assert list(reservoir) == made


@given(arrivals)
def test_what_is_discarded_makes_room(arrived):
    made = samples(arrived)
    reservoir = filled(made)
    before = set(reservoir)
    reservoir.discard(lambda each: each.cluster == 0)
    assert set(reservoir) == {each for each in before if each.cluster != 0}
    again = [sample(f"again {i}", size, cluster=c) for i, (c, size) in enumerate(arrived)]
    for each in again:
        reservoir.add(each)
    assert sum(each.size for each in reservoir) <= ROOM


def test_a_tenth_is_held_back_by_whole_conversations():
    turns = [sample(f"s{i}") for i in range(2000)]
    assert 150 < sum(each.held for each in turns) < 250
    later = [sample(f"later {i}", conversation=each.conversation) for i, each in enumerate(turns)]
    assert [each.held for each in later] == [each.held for each in turns]
