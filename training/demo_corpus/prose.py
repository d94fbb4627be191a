"""Plain English sentences from a small grammar, in any person and tense."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from training.demo_corpus.lexicon import (
    ADJECTIVES,
    ANIMALS,
    BOYS,
    CITIES,
    COLOURS,
    DAYS,
    GIRLS,
    ITEMS,
    JOBS,
    PLACES,
    article,
    capital,
)

# base, third person, past, past participle
_VERBS = [
    tuple(word.split("/"))
    for word in (
        "find/finds/found/found carry/carries/carried/carried clean/cleans/cleaned/cleaned "
        "paint/paints/painted/painted buy/buys/bought/bought sell/sells/sold/sold "
        "see/sees/saw/seen bring/brings/brought/brought take/takes/took/taken "
        "make/makes/made/made lose/loses/lost/lost hide/hides/hid/hidden "
        "draw/draws/drew/drawn repair/repairs/repaired/repaired want/wants/wanted/wanted "
        "keep/keeps/kept/kept choose/chooses/chose/chosen open/opens/opened/opened "
        "hold/holds/held/held forget/forgets/forgot/forgotten need/needs/needed/needed "
        "wash/washes/washed/washed move/moves/moved/moved drop/drops/dropped/dropped"
    ).split()
]
TIMES = (
    "in the morning",
    "after lunch",
    "in the evening",
    "before breakfast",
    "at noon",
    "on {day}",
    "every week",
    "during the storm",
    "at night",
    "in the summer",
)
_WHERE = ("in the {place}", "near the {place}", "behind the {place}", "at the {place}")


@dataclass(frozen=True)
class Clause:
    """Subject, verb, object, place and time of a sentence that can be told in several ways."""

    subject: str
    verb: tuple[str, ...]
    object: str
    where: str
    when: str
    tense: str = "past"
    negative: bool = False

    def predicate(self) -> str:
        base, third, past, _ = self.verb
        third_person = self.subject not in ("I", "we", "you", "they")
        if self.tense == "future":
            return f"will not {base}" if self.negative else f"will {base}"
        if self.tense == "past":
            return f"did not {base}" if self.negative else past
        if self.negative:
            return f"does not {base}" if third_person else f"do not {base}"
        return third if third_person else base

    def text(self) -> str:
        parts = [self.subject, self.predicate(), self.object, self.where, self.when]
        return capital(" ".join(part for part in parts if part)) + "."

    def told(self, **changes: str | bool) -> Clause:
        return replace(self, **changes)  # type: ignore[arg-type]

    def question(self) -> str:
        base = self.verb[0]
        auxiliary = {"past": "did", "future": "will"}.get(self.tense, "does")
        if auxiliary == "does" and self.subject in ("I", "we", "you", "they"):
            auxiliary = "do"
        parts = [auxiliary, self.subject, base, self.object, self.where, self.when]
        return capital(" ".join(part for part in parts if part)) + "?"

    def passive(self) -> str:
        """The past passive; the object must be singular."""
        doer = {"I": "me", "we": "us", "they": "them"}.get(self.subject, self.subject)
        parts = [self.object, "was", self.verb[3], "by", doer, self.where, self.when]
        return capital(" ".join(part for part in parts if part)) + "."


def noun_phrase(rng: random.Random, definite: bool | None = None) -> str:
    noun = rng.choice(ITEMS)[0]
    words = [noun]
    if rng.random() < 0.5:
        words.insert(0, rng.choice(COLOURS))
    if rng.random() < 0.4:
        words.insert(0, rng.choice(ADJECTIVES))
    phrase = " ".join(words)
    if definite is None:
        definite = rng.random() < 0.6
    return f"the {phrase}" if definite else article(phrase)


def subject(rng: random.Random) -> str:
    form = rng.randrange(4)
    if form == 0:
        return f"the {rng.choice(JOBS)}"
    if form == 1:
        return f"the {rng.choice(ADJECTIVES)} {rng.choice(ANIMALS)}"
    return rng.choice(GIRLS + BOYS)


def clause(rng: random.Random, who: str | None = None) -> Clause:
    where = rng.choice(_WHERE).format(place=rng.choice(PLACES)) if rng.random() < 0.7 else ""
    when = rng.choice(TIMES).format(day=rng.choice(DAYS)) if rng.random() < 0.5 else ""
    return Clause(who or subject(rng), rng.choice(_VERBS), noun_phrase(rng), where, when)


def paragraph(rng: random.Random, sentences: int) -> str:
    """Sentences about one person; the first names them, the others say he or she."""
    girl = rng.random() < 0.5
    name, pronoun = (rng.choice(GIRLS), "she") if girl else (rng.choice(BOYS), "he")
    his = "her" if girl else "his"
    city = rng.choice(CITIES)
    lines = [
        rng.choice(
            [
                f"{name} is {article(rng.choice(JOBS))} from {city}.",
                f"{name} lives in {city} with {his} {rng.choice(ANIMALS)}.",
                clause(rng, name).text(),
            ]
        )
    ]
    extras = (
        f"{capital(pronoun)} felt {{}} about it.",
        f"It was {{}} on that {rng.choice(DAYS)}.",
        f"{capital(his)} friends thought it was {{}}.",
    )
    feelings = ("happy", "strange", "cold", "wonderful", "sad", "proud", "funny", "quiet")
    for _ in range(sentences - 1):
        if rng.random() < 0.25:
            lines.append(rng.choice(extras).format(rng.choice(feelings)))
        else:
            lines.append(clause(rng, pronoun).text())
    return " ".join(lines)
