"""`specadapt simulate`: its figures, what they depend on, and bad input."""

import json

import pytest

from ops.simulate.policies import Fleet, least_loaded
from router.replica_loads import ReplicaLoads
from schemas import LoadReport

pytestmark = pytest.mark.usefixtures("fitted")


@pytest.fixture(scope="module")
def command(world):
    folder, _, _ = world
    return [
        *["simulate", "--config", folder / "config.yaml", "--routing", folder / "routing"],
        *["--methods", "naive,ngram", "--requests", 200, "--max-tokens", 10],
    ]


@pytest.fixture(scope="module")
def traces(world):
    """Traces of the prompts that the table was not fitted on."""
    from tests.ops.conftest import two_subjects

    folder, specadapt, _ = world
    specadapt.json(
        *["trace", "--out", folder / "traces", "--config", folder / "config.yaml"],
        *["--prompts", two_subjects(folder, "eleven", 6), "--max-tokens", 10],
    )
    return folder / "traces"


def test_routing_beside_each_method_alone(specadapt, command):
    found = specadapt.json(*command, "--replicas", 4)
    assert list(found["by_policy"]) == ["routed", "only_naive", "only_ngram"]
    for name, figures in found["by_policy"].items():
        assert figures["answered"] == figures["requests"] == 200
        assert figures["latency_mean_s"] >= found["limit"]["latency_mean_s"] * 0.999
        assert figures["goodput_per_s"] == pytest.approx(200 / figures["seconds"])
        assert sum(figures["shares"].values()) == pytest.approx(1.0)
        if name != "routed":
            assert list(figures["shares"]) == [name.removeprefix("only_")]
    assert {k: found[k] for k in found["by_policy"]["routed"]} == found["by_policy"]["routed"]
    assert found["settings"]["costs"]["model"] == "measured"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(specadapt, command):
    many = [*command, "--replicas", 45, "--policies", "routed,random"]
    one, other = (specadapt.json(*many)["by_policy"] for _ in range(2))
    assert one == other
    assert specadapt.json(*many, "--seed", 1)["by_policy"] != one


def test_traced_prompts_are_answered_as_they_were(specadapt, command, traces):
    from ops.tables.trace_store import read_rows

    found = specadapt.json(
        *command, "--replicas", 2, "--traces", traces, "--policies", "only_naive"
    )
    lengths = [len(row["answer"]) for row in read_rows(traces) if row["method"] == "naive"]
    mean = found["tokens_per_s"] * found["seconds"] / found["answered"]
    assert min(lengths) - 1e-9 <= mean <= max(lengths) + 1e-9
    assert found["settings"]["prompts"] == {"of": "traces", "count": len(lengths)}


@pytest.mark.slow
def test_published_hardware_changes_seconds_and_says_so(specadapt, command):
    common = [*command, "--replicas", 2, "--rate", 1.0]
    here = specadapt.json(*common)
    there = specadapt.json(*common, "--costs", "h100-llama-8b")
    assert there["settings"]["costs"]["source"].startswith("Liu et al.")
    assert there["latency_mean_s"] != here["latency_mean_s"]
    seconds = there["by_policy"]["only_naive"]["tpot_mean_s"]
    assert 7.1e-3 < seconds < 8e-3  # a forward of 5.9 ms and 1.2 ms around it


def test_objectives_are_counted(specadapt, command):
    common = [*command, "--replicas", 2, "--policies", "only_naive"]
    all_good = specadapt.json(*common, "--ttft-slo", 1e6, "--tpot-slo", 1e6)
    none_good = specadapt.json(*common, "--ttft-slo", 0.0)
    assert (all_good["good_share"], none_good["good_share"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--policies", "routed,best"], "--policies: best is unknown; known policies: routed"),
        (["--costs", "tpu"], "--costs: tpu is unknown; known costs: measured, h100-llama-8b"),
        (["--replicas", "1"], "--replicas: 1 are too few for one of each of 2 methods"),
        (["--traces", "/nowhere"], "/nowhere: holds no trace"),
        (["--methods", "naive,suffix"], "suffix not in the routing table"),
    ],
)
def test_bad_input_is_named(specadapt, command, flags, says):
    assert says in specadapt.refusal(*command, *flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--max-tokens", 64], "--max-tokens: the traces have answers of up to 10, not 64"),
        (["--max-tokens", 10], "of the prompts to be asked were not traced, such as"),
        (["--max-tokens", 10, "--method", "suffix"], "--method: suffix is unknown; known methods:"),
    ],
)
def test_a_check_that_could_not_be_judged_is_refused_before_it_is_served(
    specadapt, world, traces, tmp_path, flags, says
):
    folder, _, _ = world
    check = [
        *["bench", "simulated", "--config", folder / "config.yaml", "--traces", traces],
        *["--routing", folder / "routing", "--rates", "1,2", "--method-rates", "1,2"],
        *["--tests", tmp_path / "loads"],
    ]
    named = [] if "--method" in flags else ["--method", "ngram"]
    assert says in specadapt.refusal(*check, *named, *flags)
    assert not (tmp_path / "loads").exists()


def test_layouts():
    methods = ["a", "b"]
    assert Fleet(3, shared=False).layout(methods, "routed") == [("a",), ("b",), ("a",)]
    assert Fleet(2, shared=True).layout(methods, "routed") == [("a", "b")] * 2
    assert Fleet(2, shared=False).layout(methods, "only_b") == [("b",)] * 2
    assert Fleet(2, shared=False).layout(methods, "pinned_b") == [("a",), ("b",)]
    mixed = Fleet(5, shared=False, shares=(0.2, 0.8)).layout(methods, "routed")
    assert mixed == [("b",), ("b",), ("a",), ("b",), ("b",)]


def test_the_least_loaded_replica_decides():
    loads = [
        LoadReport(
            replica=m,
            methods=(m,),
            running=1,
            waiting=0,
            outstanding_tokens=n,
            free_slots=9,
            time=0,
        )
        for m, n in (("a", 50), ("b", 7), ("a", 3))
    ]
    assert least_loaded(["a", "b", "c"])(None, ReplicaLoads(loads)) == ["a", "b"]


@pytest.fixture
def loadtest(traces, tmp_path):
    """What `specadapt loadtest` writes, of traced prompts; changes are merged into it."""
    from ops.tables.trace_store import read_rows

    ids = sorted({row["prompt_id"] for row in read_rows(traces)})[:2]

    def written(**changes):
        found = {
            "requests": 3,
            "answered": 3,
            "tokens_per_s": 10.0,
            "latency_s": {"mean": 2.0, "p95": 4.0},
            "ttft_s": {"mean": 0.5},
            "tpot_s": {"mean": 0.1},
            "timeline": [
                {
                    "due": due,
                    "prompt": prompt,
                    "ttft": 0.5,
                    "seconds": 2.0,
                    "engine": {"engine_first_token_ms": 450.0, "total_seconds": 1.9},
                }
                for due, prompt in ((0.0, ids[0]), (9.0, ids[1]), (3.0, ids[0]))
            ],
            "settings": {"model": "tiny:naive", "temperature": 0.0, "max_tokens": 10},
        }
        for name, value in changes.items():
            found[name] = found[name] | value if isinstance(value, dict) else value
        file = tmp_path / "served.json"
        file.write_text(json.dumps(found))
        return file

    return written


def test_a_load_test_is_simulated_request_by_request(specadapt, command, traces, loadtest):
    common = [*command, "--replicas", 2, "--traces", traces]
    found = specadapt.json(*common, "--served", loadtest())
    assert list(found["by_policy"]) == ["pinned_naive"]
    assert found["requests"] == 3
    assert 9.0 < found["seconds"] < 10.0
    mean = found["served"]["latency_mean_s"]
    assert (mean["served"], mean["simulated"]) == (2.0, found["latency_mean_s"])
    assert mean["ratio"] == found["latency_mean_s"] / 2.0
    assert found["within"] == {"share": 0.15, "is": False}
    routed = specadapt.json(*common, "--served", loadtest(settings={"model": "tiny"}))
    assert list(routed["by_policy"]) == ["routed"]


@pytest.mark.slow
def test_a_calibrated_service_is_simulated(specadapt, command, traces, loadtest, tmp_path):
    common = [*command, "--replicas", 2, "--traces", traces, "--served", loadtest()]
    calibrate = [part for part in command[1:] if part not in ("--requests", 200)]
    out = tmp_path / "overhead.json"
    made = specadapt.json(
        *["calibrate", *calibrate, "--replicas", 2, "--traces", traces],
        *["--served", loadtest(), "--out", out],
    )
    assert json.loads(out.read_text()) == made["overhead"]
    assert made["overhead"]["reply_seconds"] == pytest.approx(0.05)
    alone = specadapt.json(*common)
    within = specadapt.json(*common, "--overhead", out)
    assert within["settings"]["overhead"] == made["overhead"]
    assert within["latency_mean_s"] > alone["latency_mean_s"]
    assert (alone["settings"]["learn"], alone["settings"]["overhead"]["cores"]) == (True, None)
    assert "--overhead" in specadapt.refusal(*common, "--overhead", tmp_path / "none.json")
    still = specadapt.json(*command, "--replicas", 2, "--policies", "routed", "--no-learn")
    assert still["settings"]["learn"] is False


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"settings": {"temperature": 0.8}}, "--served: temperature was 0.8 there and is 0.0 here"),
        ({"settings": {"max_tokens": 64}}, "--served: max_tokens was 64 there and is 10 here"),
        ({"answered": 2}, "--served: 1 requests of"),
        ({"timeline": [{"due": 0.0, "prompt": "other"}]}, "such as other: trace the prompts"),
        ({"timeline": [{"due": 0.0}]}, "was not written by `specadapt loadtest --json`"),
    ],
)
def test_other_load_tests_are_refused(specadapt, command, traces, loadtest, changes, says):
    common = [*command, "--replicas", 2, "--traces", traces]
    assert says in specadapt.refusal(*common, "--served", loadtest(**changes))
