"""Promoted heads are watched: spoilt ones go, and others stay whatever the traffic."""

from pathlib import Path

import numpy as np
import pytest
from canary_setting import BETTER, SPOILT, USUAL, Service
from stored_heads import head, origin

from deployments.drafters.canaries import LEAST_ANSWERS, MOST_ANSWERS, WINDOW
from deployments.drafters.evidence import SUMS
from deployments.drafters.versions import VersionStore


def test_a_head_that_is_spoilt_after_promotion_goes_within_a_hundred_answers(
    versions: VersionStore,
) -> None:
    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.serve(130)
    assert versions.in_force().number("eagle3") == 1
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_promoted_head_is_still_watched_after_the_next_canary(
    versions: VersionStore, tmp_path: Path
) -> None:
    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER, 2: SPOILT}
    service.serve(10 * MOST_ANSWERS)
    versions.add(head(tmp_path / "head"), origin(parent=1))
    versions.try_out(2, 0.1)
    service.serve(10 * MOST_ANSWERS)
    heads = versions.in_force()
    assert (heads.number("eagle3"), heads.canaries) == (1, {})
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_canary_that_is_promoted_by_hand_is_watched(versions: VersionStore) -> None:
    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: USUAL}
    service.serve(200)
    versions.promote(1)
    service.serve(WINDOW)
    assert versions.in_force().number("eagle3") == 1
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_head_that_was_seldom_chosen_is_watched_once_it_is(versions: VersionStore) -> None:
    service = Service(versions, 16)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(LEAST_ANSWERS - 1)
    service.serve_others(MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 1
    service.serve(WINDOW)
    assert versions.in_force().number("eagle3") == 1
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_head_stays_while_prompts_slowly_get_much_harder(versions: VersionStore) -> None:
    service = Service(versions, 17)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    for chance in np.arange(BETTER, USUAL / 2, -0.05):
        service.chances[1] = float(chance)
        service.serve(100)
        assert versions.in_force().number("eagle3") == 1


def test_a_head_stays_when_traffic_of_another_kind_comes_suddenly(versions: VersionStore) -> None:
    """3.1 tokens per step become 2.1, as they were for a head on its own kind and on others."""
    service = Service(versions, 19)
    service.chances = {0: USUAL, 1: 0.87}
    service.serve(10 * MOST_ANSWERS)
    service.serve(2 * WINDOW)
    own = _sums(service, 1)
    service.chances[1] = 0.6
    service.serve(500)
    other = _sums(service, 1) - own
    assert own[2] / own[1] == pytest.approx(3.1, abs=0.1)
    assert other[2] / other[1] == pytest.approx(2.1, abs=0.1)
    assert versions.in_force().number("eagle3") == 1
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def _sums(service: Service, version: int) -> np.ndarray:
    counts = [one for r in service.replicas for one in r.tally.counts if one.version == version]
    return np.array([[getattr(one, name) for name in SUMS] for one in counts]).sum(0)


def test_a_spoilt_head_goes_as_soon_as_the_store_is_back(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise OSError("the store is away")

    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.chances[1] = SPOILT
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_change", away)
        service.serve(100)
    assert versions.in_force().number("eagle3") == 1
    service.serve(1)
    assert versions.in_force().number("eagle3") == 0


def test_a_head_whose_promotion_was_not_confirmed_is_watched(
    versions: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store takes the promotion and fails afterwards, and the process ends."""

    def fails(*_: object) -> None:
        raise OSError("the store is away")

    service = Service(versions, 4)
    service.chances = {0: USUAL, 1: BETTER}
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_remove", fails)
        service.serve(10 * MOST_ANSWERS)
    assert versions.in_force().number("eagle3") == 1
    service.restart()
    service.chances[1] = SPOILT
    service.serve(100)
    assert versions.in_force().number("eagle3") == 0


def test_a_head_stays_while_prompts_get_a_little_harder(versions: VersionStore) -> None:
    service = Service(versions, 5)
    service.chances = {0: USUAL, 1: BETTER}
    service.serve(10 * MOST_ANSWERS)
    service.chances[1] = BETTER - 0.05
    service.serve(500)
    assert versions.in_force().number("eagle3") == 1
