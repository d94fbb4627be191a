"""The named decoding methods: each a combination of registered parts and their settings."""

from collections.abc import Sequence

from schemas import MethodSpec, SamplingParams

METHOD_KEY = "specadapt_method"
"""Key of a request's method in vLLM's extra arguments."""
KEPT_KEY = "specadapt_kept"
"""Key of a request's `kept` there. A request without it is kept."""
VLLM_PREFIX = "vllm_"
"""Prefix of the names of vLLM's methods. `specadapt vllm serve` leaves it out."""

MEDUSA_TREE = "0 1 0.0 0.0.0"
"""The tree that decoded fastest with the demo's heads on one core, where every verified token costs
time. A GPU that verifies 64 tokens as fast as one needs larger trees."""

_ALL = (
    MethodSpec(
        name="naive",
        lossless=True,
        source="plain decoding: one target step a token",
    ),
    MethodSpec(
        name="draft_verify",
        drafter="draft_model",
        verifier="rejection",
        lossless=True,
        source="Leviathan et al. 2023, arXiv 2211.17192",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="ngram",
        drafter="ngram",
        verifier="one_hot",
        lossless=True,
        source="prompt lookup decoding (Saxena 2023), as in Hugging Face and vLLM",
        settings={"drafter": {"max_n": 4, "min_n": 2, "match": "earliest"}, "stop": {"gamma": 8}},
    ),
    MethodSpec(
        name="suffix",
        drafter="suffix",
        verifier="one_hot",
        lossless=True,
        source="SuffixDecoding (arXiv 2411.04975), with calibrated lengths",
        settings={"drafter": {"least": 0.1, "past_bytes": 40_000_000}, "stop": {"gamma": 16}},
    ),
    MethodSpec(
        name="adaptive",
        drafter="adaptive",
        verifier="one_hot",
        lossless=True,
        source="look-ups and learned drafters by goodput (TurboSpec, arXiv 2406.14066)",
        settings={"drafter": {"learned": "medusa,eagle3"}, "stop": {"gamma": 16}},
    ),
    MethodSpec(
        name="adaptive_length",
        drafter="adaptive",
        verifier="one_hot",
        lossless=True,
        source="draft tokens by goodput (TurboSpec, arXiv 2406.14066)",
        settings={"drafter": {"learned": "eagle3", "look_ups": False}, "stop": {"gamma": 16}},
    ),
    MethodSpec(
        name="fuzzy",
        drafter="draft_model",
        verifier="fuzzy",
        lossless=False,
        source="Fuzzy Speculative Decoding, arXiv 2502.20704",
        settings={"stop": {"gamma": 4}, "verifier": {"divergence": "js", "threshold": 0.4}},
    ),
    MethodSpec(
        name="specinfer",
        drafter="draft_model",
        tree="static",
        verifier="multi_step",
        lossless=True,
        source="SpecInfer (Miao et al. 2024), arXiv 2305.09781, with one draft model",
        settings={"tree": {"widths": (2, 2, 1, 1), "sample": True}, "stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="medusa",
        drafter="medusa",
        tree="static",
        verifier="one_hot",
        lossless=True,
        source="Medusa (Cai et al. 2024), arXiv 2401.10774, with lossless verification",
        settings={"tree": {"paths": MEDUSA_TREE}, "stop": {"gamma": 3}},
    ),
    MethodSpec(
        name="medusa_typical",
        drafter="medusa",
        tree="static",
        verifier="typical",
        lossless=False,
        source="Medusa (Cai et al. 2024), arXiv 2401.10774, section 2.3.1",
        settings={"tree": {"paths": MEDUSA_TREE}, "stop": {"gamma": 3}},
    ),
    MethodSpec(
        name="eagle",
        drafter="eagle",
        verifier="rejection",
        lossless=True,
        source="EAGLE (Li et al. 2024), arXiv 2401.15077, on a chain as vLLM drafts with it",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="eagle2",
        drafter="eagle",
        tree="eagle2",
        verifier="one_hot",
        lossless=True,
        source="EAGLE-2 (Li et al. 2024), arXiv 2406.16858",
        settings={"tree": {"nodes": 8, "k": 2}, "stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="eagle3",
        drafter="eagle3",
        verifier="rejection",
        lossless=True,
        source="EAGLE-3 (Li et al. 2025), arXiv 2503.01840, on a chain as vLLM drafts with it",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="vllm_naive",
        engine="vllm",
        lossless=True,
        source="vLLM without speculation",
    ),
    MethodSpec(
        name="vllm_draft",
        engine="vllm",
        drafter="draft_model",
        verifier="rejection",
        lossless=True,
        source="vLLM's draft_model",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="vllm_ngram",
        engine="vllm",
        drafter="ngram",
        verifier="rejection",
        lossless=True,
        source="vLLM's ngram",
        settings={"drafter": {"max_n": 4, "min_n": 2}, "stop": {"gamma": 8}},
    ),
    MethodSpec(
        name="vllm_suffix",
        engine="vllm",
        drafter="suffix",
        verifier="rejection",
        lossless=True,
        source="SuffixDecoding (arXiv 2411.04975), vLLM's suffix over arctic-inference",
        settings={"stop": {"gamma": 8}},
    ),
    MethodSpec(
        name="vllm_eagle",
        engine="vllm",
        drafter="eagle",
        verifier="rejection",
        lossless=True,
        source="EAGLE (Li et al. 2024), arXiv 2401.15077, vLLM's eagle",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="vllm_eagle3",
        engine="vllm",
        drafter="eagle3",
        verifier="rejection",
        lossless=True,
        source="EAGLE-3 (Li et al. 2025), arXiv 2503.01840, vLLM's eagle3",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="vllm_medusa",
        engine="vllm",
        drafter="medusa",
        verifier="rejection",
        lossless=True,
        source="Medusa (Cai et al. 2024), arXiv 2401.10774, vLLM's medusa (up to 0.32)",
        settings={"stop": {"gamma": 4}},
    ),
    MethodSpec(
        name="vllm_adaptive",
        engine="vllm",
        drafter="adaptive",
        verifier="rejection",
        lossless=True,
        source="look-ups and vLLM's drafters by goodput (TurboSpec, arXiv 2406.14066)",
        settings={"drafter": {"learned": "vllm_medusa,vllm_eagle3"}, "stop": {"gamma": 8}},
    ),
    MethodSpec(
        name="vllm_mtp",
        engine="vllm",
        drafter="mtp",
        verifier="rejection",
        lossless=True,
        source="multi-token prediction of the target's own (DeepSeek-V3, arXiv 2412.19437)",
        settings={"stop": {"gamma": 1}},
    ),
    MethodSpec(
        name="vllm_peagle",
        engine="vllm",
        drafter="eagle3",
        verifier="rejection",
        lossless=True,
        source="P-EAGLE (arXiv 2602.01469), vLLM's eagle3 with parallel_drafting",
        settings={
            "drafter": {"part": "peagle", "parallel_drafting": True},
            "stop": {"gamma": 7},
        },
    ),
    MethodSpec(
        name="vllm_dflash",
        engine="vllm",
        drafter="dflash",
        verifier="rejection",
        lossless=True,
        source="DFlash (arXiv 2602.06036), vLLM's dflash",
        settings={"stop": {"gamma": 15}},
    ),
)

METHODS: dict[str, MethodSpec] = {spec.name: spec for spec in _ALL}


def get_method(name: str) -> MethodSpec:
    """Return the method registered under a name. Raises ValueError listing the known names."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(METHODS)}")
    return METHODS[name]


PAST_ANSWERS = "max_cached_requests"
"""Setting of vLLM's suffix drafter: how many past responses of any scope it drafts from."""


def refused_field(portfolio: Sequence[MethodSpec], sampling: SamplingParams) -> str | None:
    """Return the field of `sampling` that an engine with `portfolio` refuses, or None.

    vLLM takes neither min_p nor logit_bias where it speculates, and one method with a drafter
    makes it speculate for all of the engine's requests.
    """
    if not any(spec.engine == "vllm" and spec.drafter != "none" for spec in portfolio):
        return None
    if sampling.logit_bias:
        return "logit_bias"
    return "min_p" if sampling.min_p > 0.0 and sampling.temperature > 0.0 else None


def refused_draft(spec: MethodSpec, max_draft_tokens: int | None) -> str | None:
    """Return the field by which a request bounds its drafts, if the method's engine cannot, else
    None. vLLM fixes the length of drafts when it starts."""
    speculates = spec.engine == "vllm" and spec.drafter != "none"
    return "speculation" if speculates and max_draft_tokens is not None else None


def keeps_every_answer(spec: MethodSpec, *, elsewhere: bool) -> bool:
    """Return whether a method drafts from the past responses of all requests, as vLLM's suffix
    drafter does. elsewhere: its engine is a server that our settings do not reach."""
    keeps_none = spec.settings.get("drafter", {}).get(PAST_ANSWERS) == 0 and not elsewhere
    return (spec.engine, spec.drafter) == ("vllm", "suffix") and not keeps_none
