"""Questions whose answer stands in the given text, quoted or picked out."""

from __future__ import annotations

import random
import re

from training.demo_corpus.lexicon import (
    BOYS,
    CITIES,
    DAYS,
    GIRLS,
    ITEMS,
    JOBS,
    MONTHS,
    PLACES,
    article,
    listing,
    person,
)
from training.demo_corpus.prose import clause, paragraph
from training.demo_corpus.rows import Sample


def _facts(rng: random.Random) -> tuple[str, list[tuple[str, str, str]]]:
    """A short report and (question, short answer, sentence that holds it) for it."""
    name, he, _, his = person(rng)
    job, city, day = rng.choice(JOBS), rng.choice(CITIES), rng.choice(DAYS)
    month, number = rng.choice(MONTHS), rng.randint(2, 95)
    thing, place = rng.choice(ITEMS)[1], rng.choice(PLACES)
    friend = rng.choice([other for other in GIRLS + BOYS if other != name])
    one = f"{name} is {article(job)} who moved to {city} in {month}."
    two = f"On {day} {he} brought {number} {thing} to the {place}."
    three = f"{his.capitalize()} friend {friend} came along and helped until the evening."
    facts = [
        (f"What is {name}'s job?", job, one),
        (f"Which city did {name} move to?", city, one),
        (f"When did {name} move?", f"in {month}", one),
        (f"How many {thing} did {name} bring?", str(number), two),
        (f"Where did {name} bring the {thing}?", f"to the {place}", two),
        (f"On which day did {name} bring the {thing}?", f"on {day}", two),
        ("Who helped?", friend, three),
    ]
    sentences = [one, two, three]
    for _ in range(rng.randint(0, 2)):
        sentences.insert(rng.randint(1, len(sentences)), clause(rng).text())
    return " ".join(sentences), facts


def answer_from_text(rng: random.Random) -> Sample:
    text, facts = _facts(rng)
    question, short, sentence = rng.choice(facts)
    form = rng.randrange(4)
    if form == 0:
        prompt, answer = f"{text}\n{question} Answer in a few words.", short
    elif form == 1:
        prompt, answer = f"{text}\n{question} Quote the sentence.", f'"{sentence}"'
    elif form == 2:
        prompt = f"Read the text and answer the question.\nText: {text}\nQuestion: {question}"
        answer = f'{short[0].upper()}{short[1:]}. The text says: "{sentence}"'
    else:
        chosen = rng.sample(facts, 3)
        prompt = "\n".join([text, "Answer the questions.", *(fact[0] for fact in chosen)])
        answer = "\n".join(f"{i}. {fact[1]}" for i, fact in enumerate(chosen, 1))
    return Sample("general", "answer_from_text", text[:50], prompt, answer)


def quote(rng: random.Random) -> Sample:
    """The sentence that mentions a word, the first one, or the last one."""
    text = paragraph(rng, rng.randint(3, 6))
    sentences = re.findall(r"[^.]+\.", text)
    sentences = [sentence.strip() for sentence in sentences]
    form = rng.randrange(4)
    if form == 0:
        word = rng.choice(sorted(set(re.findall(r"\b[a-z]{5,}\b", text))))
        found = [item for item in sentences if re.search(rf"\b{word}\b", item)]
        ask, answer = f"Quote every sentence that contains the word '{word}'.", "\n".join(found)
    elif form == 1:
        ask, answer = "Quote the first sentence of the text.", sentences[0]
    elif form == 2:
        ask, answer = "Quote the last sentence of the text.", sentences[-1]
    else:
        number = rng.randint(2, len(sentences))
        ask, answer = f"Quote sentence number {number}.", sentences[number - 1]
    return Sample("general", "quote", text[:50], f"{ask}\n{text}", answer)


def pick_words(rng: random.Random) -> Sample:
    """Names, numbers or long words out of a text."""
    names = rng.sample(GIRLS + BOYS, rng.randint(2, 4))
    numbers = [rng.randint(2, 99) for _ in names]
    things = [rng.choice(ITEMS)[1] for _ in names]
    verb = rng.choice(["brought", "found", "bought", "counted", "painted"])
    text = " ".join(
        f"{name} {verb} {number} {thing}."
        for name, number, thing in zip(names, numbers, things, strict=True)
    )
    form = rng.randrange(4)
    if form == 0:
        ask, answer = "List the names in this text.", ", ".join(names)
    elif form == 1:
        ask, answer = "List the numbers in this text.", ", ".join(map(str, numbers))
    elif form == 2:
        ask = "Make a list of who has what."
        answer = "\n".join(
            f"- {name}: {number} {thing}"
            for name, number, thing in zip(names, numbers, things, strict=True)
        )
    else:
        ask = "Summarise the text in one sentence."
        answer = f"{listing(names)} {verb} {listing(things)}."
    return Sample("general", "pick_words", text[:50], f"{ask}\n{text}", answer)


GENERATORS = ((answer_from_text, 4.0), (quote, 2.0), (pick_words, 1.5))
