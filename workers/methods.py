"""The named decoding methods: each a combination of registered parts and their settings."""

from schemas import MethodSpec

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
        name="fuzzy",
        drafter="draft_model",
        verifier="fuzzy",
        lossless=False,
        source="Fuzzy Speculative Decoding, arXiv 2502.20704",
        settings={"stop": {"gamma": 4}, "verifier": {"divergence": "js", "threshold": 0.4}},
    ),
)

METHODS: dict[str, MethodSpec] = {spec.name: spec for spec in _ALL}


def get_method(name: str) -> MethodSpec:
    """The spec registered under a name; raises ValueError listing the names there are."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}: choose from {', '.join(METHODS)}")
    return METHODS[name]
