"""The training corpus of the demo family: shared data, generated tasks and Python source."""

from training.demo_corpus.build import build_corpus
from training.demo_corpus.mix import REPEATS, repeats
from training.demo_corpus.rows import DOMAINS, CorpusError, Message, Row, read_rows

__all__ = [
    "DOMAINS",
    "REPEATS",
    "CorpusError",
    "Message",
    "Row",
    "build_corpus",
    "read_rows",
    "repeats",
]
