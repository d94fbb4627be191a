"""Samples of finished answers."""

import hashlib

from schemas import Sample


def sample(identity: str, tokens: int = 10, **fields) -> Sample:
    """Return a sample of `tokens` tokens, half of them the answer's, with `fields` changed."""
    answer = (tokens + 1) // 2
    given = {
        "id": identity,
        "conversation": hashlib.sha256(identity.encode()).hexdigest(),
        "owner": "tenant acme",
        "fit_id": "small",
        "cluster": 0,
        "method": "naive",
        "temperature": 0.0,
        "prompt_token_ids": tuple(range(tokens - answer)),
        "answer_token_ids": tuple(range(answer)),
        "time": 1000.0,
    }
    return Sample.model_validate(given | fields)
