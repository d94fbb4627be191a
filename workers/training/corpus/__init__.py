"""The training corpus of the demo family: shared data, generated tasks and Python source."""

from workers.training.corpus.build import build_corpus
from workers.training.corpus.mix import REPEATS, repeats
from workers.training.corpus.rows import DOMAINS, CorpusError, Message, Row, read_rows

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
