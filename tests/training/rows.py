"""Rows for tests."""

from training.corpus import Row


def single_turn(row_id: str, domain: str, source: str, prompt: str, response: str) -> Row:
    """Return a row with one prompt and one answer."""
    return {
        "id": row_id,
        "domain": domain,
        "source": source,
        "messages": [
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": response},
        ],
    }
