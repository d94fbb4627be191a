"""A training corpus from a user's JSON Lines files."""

from training.corpus.build import build_corpus
from training.corpus.rows import CorpusError, Message, Row, read_rows, row_text

__all__ = ["CorpusError", "Message", "Row", "build_corpus", "read_rows", "row_text"]
