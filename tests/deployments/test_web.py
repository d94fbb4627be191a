"""The chat page's files against what the service sends."""

import re
from pathlib import Path
from typing import get_args

import deployments.web
from schemas.observation import Reason


def test_the_page_has_words_for_every_reason():
    [folder] = deployments.web.__path__
    [listed] = re.findall(r"REASONS = \{(.*?)\n\}", Path(folder, "answer.js").read_text(), re.S)
    assert set(re.findall(r"^\s*(\w+):", listed, re.M)) == set(get_args(Reason))
