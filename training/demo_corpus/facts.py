"""Short questions from knowledge tables, definitions, lists and instructions."""

from __future__ import annotations

import random

from training.demo_corpus.knowledge import (
    CATEGORIES,
    COUNTRIES,
    DEFINITIONS,
    ELEMENTS,
    HOW_TO,
    OPPOSITES,
    PAST,
    PLURALS,
    YOUNG,
)
from training.demo_corpus.lexicon import article, capital, listing
from training.demo_corpus.rows import Sample


def _ask(rng: random.Random, group: str, asks: list[str], short: str, long: str) -> Sample:
    """A question answered in a word or in a sentence; 'In a sentence' asks for the latter."""
    ask = rng.choice(asks)
    if rng.random() < 0.5:
        return Sample("qa", "fact", f"{group}/{ask}", ask, short)
    polite = rng.choice(["Answer in a full sentence.", "Please answer with a sentence."])
    return Sample("qa", "fact", f"{group}/{ask}", f"{ask} {polite}", long)


def country_fact(rng: random.Random) -> Sample:
    name, city, continent, language, money = rng.choice(COUNTRIES)
    facts = [
        (
            [f"What is the capital of {name}?", f"Which city is the capital of {name}?",
             f"Name the capital of {name}."],
            city, f"The capital of {name} is {city}.",
        ),
        ([f"Of which country is {city} the capital?", f"{city} is the capital of which country?"],
         name, f"{city} is the capital of {name}."),
        ([f"On which continent is {name}?", f"Which continent does {name} belong to?"],
         continent, f"{name} is in {continent}."),
        ([f"Which language is spoken in {name}?", f"What language do people speak in {name}?"],
         language, f"People in {name} speak {language}."),
        ([f"What is the currency of {name}?", f"Which money is used in {name}?"],
         f"the {money}", f"The currency of {name} is the {money}."),
    ]  # fmt: skip
    return _ask(rng, f"country/{name}", *rng.choice(facts))


def element_fact(rng: random.Random) -> Sample:
    name, symbol, number = rng.choice(ELEMENTS)
    facts = [
        ([f"What is the chemical symbol of {name}?", f"Which symbol stands for {name}?"],
         symbol, f"The chemical symbol of {name} is {symbol}."),
        ([f"Which element has the symbol {symbol}?", f"What does {symbol} stand for in chemistry?"],
         name, f"The symbol {symbol} stands for {name}."),
        ([f"What is the atomic number of {name}?", f"How many protons has an atom of {name}?"],
         number, f"The atomic number of {name} is {number}."),
    ]  # fmt: skip
    return _ask(rng, f"element/{name}", *rng.choice(facts))


def word_fact(rng: random.Random) -> Sample:
    form = rng.randrange(4)
    if form == 0:
        parent, young = rng.choice(YOUNG).split("/")
        asks = [f"What is a young {parent} called?", f"What do you call the young of a {parent}?"]
        return _ask(rng, f"young/{parent}", asks, young, f"A young {parent} is called a {young}.")
    if form == 1:
        pair = rng.choice(OPPOSITES).split("/")
        rng.shuffle(pair)
        asks = [
            f"What is the opposite of {pair[0]}?",
            f"Which word means the opposite of {pair[0]}?",
        ]
        long = f"The opposite of {pair[0]} is {pair[1]}."
        return _ask(rng, f"opposite/{'/'.join(sorted(pair))}", asks, pair[1], long)
    table, what = ((PAST, "past tense"), (PLURALS, "plural"))[form - 2]
    word, answer = rng.choice(table).split("/")
    asks = [f"What is the {what} of '{word}'?", f"Give the {what} of '{word}'."]
    return _ask(rng, f"{what}/{word}", asks, answer, f"The {what} of '{word}' is '{answer}'.")


def number_fact(rng: random.Random) -> Sample:
    a, b = rng.randint(2, 99), rng.randint(2, 99)
    form = rng.randrange(5)
    if form == 0:
        return _ask(rng, f"sum/{a}/{b}", [f"What is {a} plus {b}?", f"How much is {a} + {b}?"],
                    str(a + b), f"{a} plus {b} is {a + b}.")  # fmt: skip
    if form == 1:
        a, b = a % 12 + 1, b % 12 + 1
        return _ask(rng, f"product/{a}/{b}", [f"What is {a} times {b}?", f"How much is {a} x {b}?"],
                    str(a * b), f"{a} times {b} is {a * b}.")  # fmt: skip
    if form == 2:
        n = a * 10 + b
        answer = "even" if n % 2 == 0 else "odd"
        return _ask(rng, f"parity/{n}", [f"Is {n} even or odd?", f"Is the number {n} odd or even?"],
                    answer, f"The number {n} is {answer}.")  # fmt: skip
    if form == 3:
        if a == b:
            b += 1
        bigger = max(a, b)
        asks = [f"Which is bigger, {a} or {b}?", f"What is the larger number: {a} or {b}?"]
        return _ask(rng, f"bigger/{a}/{b}", asks, str(bigger),
                    f"{bigger} is bigger than {min(a, b)}.")  # fmt: skip
    units = {"minutes/hours": 60, "seconds/minutes": 60, "hours/days": 24, "days/weeks": 7}
    units |= {"centimetres/metres": 100, "grams/kilograms": 1000, "metres/kilometres": 1000}
    key = rng.choice(sorted(units))
    small, large = key.split("/")
    n = a % 20 + 2
    return _ask(rng, f"unit/{key}/{n}", [f"How many {small} are {n} {large}?"],
                str(n * units[key]), f"{n} {large} are {n * units[key]} {small}.")  # fmt: skip


def define(rng: random.Random) -> Sample:
    term, kind, what, use = rng.choice(DEFINITIONS)
    name = term if term in ("photosynthesis", "gravity", "democracy") else article(term)
    asks = [
        f"What is {name}?",
        f"Define {name}.",
        f"Explain what {name} is.",
        f"Explain {name} to a child.",
        f"What is {name} good for?",
        f"Give a short definition of {name}.",
    ]
    ask = rng.choice(asks)
    if ask.endswith("good for?"):
        answer = f"{capital(name)} is good for {use}, because it {what}."
    elif "child" in ask:
        answer = f"{capital(name)} is {kind} that {what}. People need it for {use}."
    else:
        answer = f"{capital(name)} is {kind} that {what}. It is important for {use}."
    other = rng.choice([row for row in DEFINITIONS if row[0] != term])
    if rng.random() < 0.4:
        second = other[0] if other[0] in ("photosynthesis", "gravity", "democracy") else article(
            other[0])  # fmt: skip
        ask = rng.choice(
            [f"What is the difference between {name} and {second}?",
             f"Compare {name} with {second}."]
        )  # fmt: skip
        answer = f"{capital(name)} is {kind} that {what}, while {second} is {other[1]} that "
        answer += f"{other[2]}. The first is important for {use}, the second for {other[3]}."
        return Sample("general", "compare_terms", f"terms/{term}/{other[0]}", ask, answer)
    return Sample("general", "define", f"define/{term}/{ask}", ask, answer)


def name_some(rng: random.Random) -> Sample:
    category = rng.choice(sorted(CATEGORIES))
    members = CATEGORIES[category].split()
    chosen = rng.sample(members, rng.randint(2, min(7, len(members))))
    count = len(chosen)
    form = rng.randrange(4)
    group = f"name/{category}/{'/'.join(chosen[:2])}"
    if form == 0:
        ask, answer = f"Name {count} {category}.", listing(chosen)
    elif form == 1:
        ask = f"Give me a numbered list of {count} {category}."
        answer = "\n".join(f"{i}. {capital(word)}" for i, word in enumerate(chosen, 1))
    elif form == 2:
        ask = f"What do these have in common: {listing(chosen)}?"
        answer = f"They are all {category}."
    else:
        other = rng.choice([key for key in sorted(CATEGORIES) if key != category])
        odd = rng.choice([word for word in CATEGORIES[other].split() if word not in members])
        mixed = [*chosen, odd]
        rng.shuffle(mixed)
        ask = f"Which word does not belong: {', '.join(mixed)}?"
        answer = f"{capital(odd)} does not belong, because the others are {category}."
    return Sample("general", "name_some", group, ask, answer)


def how_to(rng: random.Random) -> Sample:
    goal, tools, steps = rng.choice(HOW_TO)
    count = rng.randint(3, len(steps))
    form = rng.randrange(4)
    chosen = steps[:count] if form else steps
    if form == 0:
        ask = rng.choice([f"How do I {goal}?", f"Explain how to {goal}.", f"How can I {goal}?"])
        answer = f"You need {tools}. " + " ".join(
            f"{word}, {step[0].lower()}{step[1:]}."
            for word, step in zip(["First", "Then", "Next", "After that", "Finally"], steps,
                                  strict=True)
        )  # fmt: skip
    elif form == 1:
        ask = f"List the first {count} steps to {goal}."
        answer = "\n".join(f"{i}. {step}." for i, step in enumerate(chosen, 1))
    elif form == 2:
        ask = f"Give me {count} tips on how to {goal}, as bullet points."
        answer = "\n".join(f"- {step}." for step in rng.sample(steps, count))
    else:
        ask, answer = f"What do I need to {goal}?", f"To {goal} you need {tools}."
    other = rng.choice(["", "", " Keep it short.", " I am a beginner.", " Please be clear."])
    return Sample("general", "how_to", f"how/{goal}/{form}/{count}{other}", ask + other, answer)


GENERATORS = (
    (country_fact, 2.0),
    (element_fact, 1.2),
    (word_fact, 2.0),
    (number_fact, 4.0),
    (define, 2.0),
    (name_some, 2.0),
    (how_to, 1.0),
)
