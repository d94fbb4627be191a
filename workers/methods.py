"""The named decoding methods: each a combination of registered parts and their settings."""

from collections.abc import Sequence
from typing import Any

from schemas import MethodSpec, SamplingParams
from schemas.config import Setting

METHOD_KEY = "specadapt_method"
"""Key of a request's method in vLLM's extra arguments."""
KEPT_KEY = "specadapt_kept"
"""Key of a request's `kept` there. A request without it is kept."""
VLLM_PREFIX = "vllm_"
"""Prefix of the names of vLLM's methods. `specadapt vllm serve` leaves it out."""

MEDUSA_TREE = "0 1 0.0 0.0.0"
"""The tree that decoded fastest with the demo's heads on one core, where every verified token costs
time. A GPU that verifies 64 tokens as fast as one needs larger trees."""

EAGLE = "EAGLE (Li et al. 2024), arXiv 2401.15077"
EAGLE_3 = "EAGLE-3 (Li et al. 2025), arXiv 2503.01840"
MEDUSA = "Medusa (Cai et al. 2024), arXiv 2401.10774"
ON_A_CHAIN = "on a chain as vLLM drafts with it"


def _spec(
    name: str, drafter: str, verifier: str, gamma: int, source: str, **more: Any
) -> MethodSpec:
    """Return a method that drafts up to `gamma` levels.

    more: other fields of MethodSpec. The method is lossless, of our engine and on a chain unless
    they say otherwise.
    """
    settings = {**more.pop("settings", {}), "stop": {"gamma": gamma}}
    fields = {"lossless": True, "settings": settings, **more}
    return MethodSpec(name=name, drafter=drafter, verifier=verifier, source=source, **fields)


def _of_vllm(name: str, drafter: str, gamma: int, source: str, **own: Setting) -> MethodSpec:
    """Return a method of vLLM's. own: the drafter's settings."""
    settings = {"drafter": own} if own else {}
    full = f"{VLLM_PREFIX}{name}"
    return _spec(full, drafter, "rejection", gamma, source, engine="vllm", settings=settings)


_ALL = (
    MethodSpec(name="naive", lossless=True, source="plain decoding: one target step a token"),
    _spec("draft_verify", "draft_model", "rejection", 4, "Leviathan et al. 2023, arXiv 2211.17192"),
    _spec(
        *("ngram", "ngram", "one_hot", 8),
        "prompt lookup decoding (Saxena 2023), as in Hugging Face and vLLM",
        settings={"drafter": {"max_n": 4, "min_n": 2, "match": "earliest"}},
    ),
    _spec(
        *("suffix", "suffix", "one_hot", 16),
        "SuffixDecoding (arXiv 2411.04975), with calibrated lengths",
        settings={"drafter": {"least": 0.1, "past_bytes": 40_000_000}},
    ),
    _spec(
        *("adaptive", "adaptive", "one_hot", 16),
        "look-ups and learned drafters by goodput (TurboSpec, arXiv 2406.14066)",
        settings={"drafter": {"learned": "medusa,eagle3"}},
    ),
    _spec(
        *("adaptive_length", "adaptive", "one_hot", 16),
        "draft tokens by goodput (TurboSpec, arXiv 2406.14066)",
        settings={"drafter": {"learned": "eagle3", "look_ups": False}},
    ),
    _spec(
        *("fuzzy", "draft_model", "fuzzy", 4),
        "Fuzzy Speculative Decoding, arXiv 2502.20704",
        lossless=False,
        settings={"verifier": {"divergence": "js", "threshold": 0.4}},
    ),
    _spec(
        *("specinfer", "draft_model", "multi_step", 4),
        "SpecInfer (Miao et al. 2024), arXiv 2305.09781, with one draft model",
        tree="static",
        settings={"tree": {"widths": (2, 2, 1, 1), "sample": True}},
    ),
    _spec(
        *("medusa", "medusa", "one_hot", 3, f"{MEDUSA}, with lossless verification"),
        tree="static",
        settings={"tree": {"paths": MEDUSA_TREE}},
    ),
    _spec(
        *("medusa_typical", "medusa", "typical", 3, f"{MEDUSA}, section 2.3.1"),
        tree="static",
        lossless=False,
        settings={"tree": {"paths": MEDUSA_TREE}},
    ),
    _spec("eagle", "eagle", "rejection", 4, f"{EAGLE}, {ON_A_CHAIN}"),
    _spec(
        *("eagle2", "eagle", "one_hot", 4, "EAGLE-2 (Li et al. 2024), arXiv 2406.16858"),
        tree="eagle2",
        settings={"tree": {"nodes": 8, "k": 2}},
    ),
    _spec("eagle3", "eagle3", "rejection", 4, f"{EAGLE_3}, {ON_A_CHAIN}"),
    MethodSpec(name="vllm_naive", engine="vllm", lossless=True, source="vLLM without speculation"),
    _of_vllm("draft", "draft_model", 4, "vLLM's draft_model"),
    _of_vllm("ngram", "ngram", 8, "vLLM's ngram", max_n=4, min_n=2),
    _of_vllm(
        *("suffix", "suffix", 8),
        "SuffixDecoding (arXiv 2411.04975), vLLM's suffix over arctic-inference",
    ),
    _of_vllm("eagle", "eagle", 4, f"{EAGLE}, vLLM's eagle"),
    _of_vllm("eagle3", "eagle3", 4, f"{EAGLE_3}, vLLM's eagle3"),
    _of_vllm("medusa", "medusa", 4, f"{MEDUSA}, vLLM's medusa (up to 0.32)"),
    _of_vllm(
        *("adaptive", "adaptive", 8),
        "look-ups and vLLM's drafters by goodput (TurboSpec, arXiv 2406.14066)",
        learned="vllm_medusa,vllm_eagle3",
    ),
    _of_vllm(
        *("mtp", "mtp", 1),
        "multi-token prediction of the target's own (DeepSeek-V3, arXiv 2412.19437)",
    ),
    _of_vllm(
        *("peagle", "eagle3", 7),
        "P-EAGLE (arXiv 2602.01469), vLLM's eagle3 with parallel_drafting",
        part="peagle",
        parallel_drafting=True,
    ),
    _of_vllm("dflash", "dflash", 15, "DFlash (arXiv 2602.06036), vLLM's dflash"),
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
