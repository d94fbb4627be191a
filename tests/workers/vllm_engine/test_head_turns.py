"""Which version of a head a shared vLLM engine loads when. The engine is a list of its loads here;
a real one is in test_exchanged_vllm_heads.py."""

from pathlib import Path

import pytest
from conftest_bundle import DEMO

from deployments.head_training.canaries import LEAST_ANSWERS, MOST_ANSWERS
from deployments.head_training.trainer import CANARY_SHARE
from workers.bundle import Bundle, BundleError, load_bundle
from workers.methods import get_method
from workers.vllm_engine.heads import TURN_BATCHES, ExchangedHeads, heads_salt

METHODS = ("vllm_naive", "vllm_eagle3", "vllm_medusa")
BATCH = 2
TURN = TURN_BATCHES * BATCH
HEAD, OTHER = Path("head"), Path("other")


class Loads:
    """What was loaded; folders in `broken` fail."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Path]] = []
        self.broken: set[Path] = set()

    async def load(self, part: str, folder: Path) -> None:
        if folder in self.broken:
            raise RuntimeError("no memory")
        self.done.append((part, folder))


@pytest.fixture
def bundle() -> Bundle:
    return load_bundle(DEMO)


@pytest.fixture
def loads() -> Loads:
    return Loads()


@pytest.fixture
def heads(bundle: Bundle, loads: Loads) -> ExchangedHeads:
    return made(bundle, loads)


def made(
    bundle: Bundle, loads: Loads, replica: str = "r", max_batch: int = BATCH
) -> ExchangedHeads:
    return ExchangedHeads([get_method(m) for m in METHODS], bundle, loads.load, max_batch, replica)


async def drafted(heads: ExchangedHeads, method: str = "vllm_eagle3") -> dict[str, int]:
    return heads.drafted(await heads.begin(method))


async def test_a_canary_has_its_share_of_requests_in_turns(heads, loads, bundle):
    assert heads.parts == {"eagle3", "medusa"}
    await heads.exchange("eagle3", 1, HEAD, 0.25)
    first = [(await drafted(heads))["eagle3"] for _ in range(TURN)]
    assert first == TURN * [1]
    served = [(await drafted(heads))["eagle3"] for _ in range(3 * 4 * TURN)]
    assert served.count(1) == 3 * TURN
    turns = sum(one != before for one, before in zip(served[1:], served, strict=False))
    assert turns <= 7, "a turn is in one piece"
    own = bundle.part("eagle3")
    assert {*loads.done} == {("eagle3", HEAD), ("eagle3", own)}
    assert (await drafted(heads, "vllm_medusa"), await drafted(heads, "vllm_naive")) == (
        {"medusa": 0},
        {},
    )


async def test_a_canary_of_a_large_batch_is_tried_before_its_trial_ends(bundle, loads):
    for replica in range(8):
        heads = made(bundle, loads, f"r{replica}", max_batch=64)
        await heads.exchange("eagle3", 1, HEAD, CANARY_SHARE)
        served = [(await drafted(heads))["eagle3"] for _ in range(MOST_ANSWERS)]
        assert min(served.count(0), served.count(1)) >= LEAST_ANSWERS


async def test_the_turns_of_replicas_begin_at_different_requests(bundle, loads):
    begun = set()
    for replica in range(8):
        heads = made(bundle, loads, f"r{replica}")
        await heads.exchange("eagle3", 1, HEAD, 0.1)
        begun.add(tuple([(await drafted(heads))["eagle3"] for _ in range(10 * TURN)]))
    assert len(begun) > 4


async def test_a_version_in_force_ends_the_canary(heads, loads):
    await heads.exchange("eagle3", 1, HEAD, 0.999)
    await heads.begin("eagle3")
    await heads.exchange("eagle3", 2, OTHER, 1.0)
    assert [await drafted(heads) for _ in range(2 * TURN)] == 2 * TURN * [{"eagle3": 2}]
    assert loads.done[-1] == ("eagle3", OTHER)


async def test_a_request_during_which_the_head_changed_counts_for_no_version(heads):
    seen = await heads.begin("vllm_eagle3")
    await heads.exchange("medusa", 1, HEAD, 1.0)
    assert heads.drafted(seen) == {"eagle3": 0}
    await heads.exchange("eagle3", 2, HEAD, 1.0)
    await heads.exchange("eagle3", 0, OTHER, 1.0)
    assert heads.drafted(seen) == {}


async def test_keys_and_values_of_versions_are_kept_apart(heads):
    assert heads_salt(await heads.begin("vllm_eagle3")) is None
    for part in ("eagle3", "medusa"):
        await heads.exchange(part, 3, HEAD, 1.0)
    assert heads_salt(await heads.begin("vllm_eagle3")) == "eagle3-3"
    assert heads_salt(await heads.begin("vllm_medusa")) is None


async def test_a_head_that_the_engine_does_not_load_changes_nothing(heads, loads, bundle):
    loads.broken = {HEAD}
    with pytest.raises(BundleError, match="no memory"):
        await heads.exchange("eagle3", 1, HEAD, 1.0)
    assert await drafted(heads) == {"eagle3": 0}
    assert loads.done == [("eagle3", bundle.part("eagle3"))]


async def test_a_canary_that_the_engine_does_not_load_ends(heads, loads, caplog):
    loads.broken = {HEAD}
    await heads.exchange("eagle3", 1, HEAD, 0.999)
    served = [await drafted(heads) for _ in range(2 * TURN)]
    assert {"eagle3": 1} not in served
    assert served[-1] == {"eagle3": 0}
    assert [r.message for r in caplog.records] == ["the canary 1 of eagle3 ends here: no memory"]
