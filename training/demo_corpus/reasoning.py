"""Logic tasks solved step by step, and tasks of the reasoning-gym library."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import reasoning_gym

from training.demo_corpus.lexicon import BOYS, COLOURS, GIRLS, ITEMS, capital, two_names
from training.demo_corpus.rows import Sample

# name -> domain; chosen for short prompts and answers that follow by a rule
GYM_TASKS = {
    "number_sorting": "logic",
    "word_sorting": "logic",
    "letter_counting": "logic",
    "spell_backward": "logic",
    "number_filtering": "logic",
    "syllogism": "logic",
    "family_relationships": "logic",
    "knights_knaves": "logic",
    "word_sequence_reversal": "logic",
    "sentence_reordering": "logic",
    "caesar_cipher": "logic",
    "number_format": "logic",
    "aiw": "logic",
    "number_sequence": "logic",
    "needle_haystack": "logic",
    "coin_flip": "math",
    "leg_counting": "math",
    "time_intervals": "math",
    "calendar_arithmetic": "math",
    "gcd": "math",
    "fraction_simplification": "math",
    "prime_factorization": "math",
    "simple_equations": "math",
    "chain_sum": "math",
}


def gym_samples(task: str, count: int, seed: int) -> Iterator[Sample]:
    """`count` samples of one reasoning-gym task."""
    for item in reasoning_gym.create_dataset(task, size=count, seed=seed):
        question, answer = str(item["question"]).strip(), str(item["answer"]).strip()
        yield Sample(GYM_TASKS[task], f"gym_{task}", question, question, answer)


def order(rng: random.Random) -> Sample:
    """Comparisons that chain up to an order."""
    names = rng.sample(GIRLS + BOYS, rng.randint(3, 5))
    more, less, most, least = rng.choice(
        [
            ("taller", "shorter", "tallest", "shortest"),
            ("older", "younger", "oldest", "youngest"),
            ("faster", "slower", "fastest", "slowest"),
            ("richer", "poorer", "richest", "poorest"),
            ("stronger", "weaker", "strongest", "weakest"),
        ]
    )
    facts = []
    for high, low in pairwise(names):
        if rng.random() < 0.5:
            facts.append(f"{high} is {more} than {low}.")
        else:
            facts.append(f"{low} is {less} than {high}.")
    rng.shuffle(facts)
    chain = " > ".join(names)
    form = rng.randrange(3)
    if form == 0:
        question, answer = f"Who is the {most}?", f"The {most} is {names[0]}."
    elif form == 1:
        question, answer = f"Who is the {least}?", f"The {least} is {names[-1]}."
    else:
        question = f"Order them from {most} to {least}."
        answer = f"The order is {', '.join(names)}."
    prompt = f"{' '.join(facts)} {question}"
    return Sample("logic", "order", chain, prompt, f"The order is {chain}.\n{answer}")


def swaps(rng: random.Random) -> Sample:
    """Who holds what after some exchanges, followed step by step."""
    names = rng.sample(GIRLS + BOYS, 3)
    things = [f"{colour} {rng.choice(ITEMS)[0]}" for colour in rng.sample(COLOURS, 3)]
    held = dict(zip(names, things, strict=True))
    start = ", ".join(f"{name} has the {thing}" for name, thing in held.items())
    moves, lines = [], []
    for _ in range(rng.randint(1, 3)):
        first, second = rng.sample(names, 2)
        held[first], held[second] = held[second], held[first]
        moves.append(f"{first} and {second} swap.")
        lines.append(
            f"{first} and {second} swap: {first} has the {held[first]}, "
            f"{second} has the {held[second]}."
        )
    who = rng.choice(names)
    prompt = f"{start}. {' '.join(moves)} What does {who} have at the end?"
    lines.append(f"So {who} has the {held[who]}.")
    return Sample("logic", "swaps", start, prompt, "\n".join(lines))


def boolean(rng: random.Random) -> Sample:
    """A Boolean expression, evaluated from the inside."""
    a, b, c = (rng.choice([True, False]) for _ in range(3))
    inner_word, outer_word = rng.choice(["and", "or"]), rng.choice(["and", "or"])
    negate = rng.random() < 0.5
    inner = (a and b) if inner_word == "and" else (a or b)
    text = f"({a} {inner_word} {b})"
    lines = [f"{text} is {inner}."]
    if negate:
        text = f"not {text}"
        lines.append(f"not {inner} is {not inner}.")
        inner = not inner
    value = (inner and c) if outer_word == "and" else (inner or c)
    lines.append(f"{inner} {outer_word} {c} is {value}.")
    name = rng.choice("pqrstxyz")
    ask = rng.choice([f"Let {name} be {text} {outer_word} {c}. Is {name} True or False?",
                      f"Evaluate {name} = {text} {outer_word} {c}."])  # fmt: skip
    lines.append(f"So {name} is {value}.")
    return Sample("logic", "boolean", ask, ask, "\n".join(lines))


def walk(rng: random.Random) -> Sample:
    """Steps north, south, east and west; where does one end?"""
    east, north, moves, lines = 0, 0, [], []
    for _ in range(rng.randint(2, 5)):
        steps, way = rng.randint(1, 9), rng.choice(["north", "south", "east", "west"])
        east += steps * {"east": 1, "west": -1}.get(way, 0)
        north += steps * {"north": 1, "south": -1}.get(way, 0)
        moves.append(f"{steps} steps {way}")
        lines.append(f"After {steps} steps {way}: ({east}, {north}).")
    name = rng.choice(GIRLS + BOYS)
    prompt = f"{name} starts at (0, 0), where the first number counts east and the second north, "
    prompt += f"and takes {', then '.join(moves)}. "
    prompt += rng.choice([f"Where is {name} now?", "Is that the starting point?"])
    home = (east, north) == (0, 0)
    if prompt.endswith("point?"):
        lines.append("Yes, it is the starting point." if home else "No, it is another point.")
    else:
        lines.append(f"{name} is at ({east}, {north}).")
    return Sample("logic", "walk", "/".join(moves), prompt, "\n".join(lines))


def rule(rng: random.Random) -> Sample:
    """All A are B; X is an A: what follows?"""
    nonsense = "blip zorp wug dax fep tove lirp mub quil snark grup plim".split()
    a, b, c = rng.sample(nonsense, 3)
    name, _ = two_names(rng)
    form = rng.randrange(4)
    if form == 0:
        prompt = f"All {a}s are {b}s. All {b}s are {c}s. {name} is a {a}. Is {name} a {c}?"
        answer = f"{name} is a {a}, so {name} is a {b}. All {b}s are {c}s, so yes."
    elif form == 1:
        prompt = f"All {a}s are {b}s. No {b} is a {c}. {name} is a {a}. Can {name} be a {c}?"
        answer = f"{name} is a {a}, so {name} is a {b}. No {b} is a {c}, so no."
    elif form == 2:
        prompt = f"All {a}s are {b}s. {name} is not a {b}. Is {name} a {a}?"
        answer = f"Every {a} is a {b}. {name} is not a {b}, so {name} is not a {a}: no."
    else:
        prompt = f"All {a}s are {b}s. {name} is a {b}. Must {name} be a {a}?"
        answer = f"A {b} need not be a {a}. So it does not follow: no."
    return Sample("logic", "rule", f"{a}/{b}/{c}/{form}", prompt, answer)


def count_objects(rng: random.Random) -> Sample:
    """Counts by kind or colour, listed before they are added."""
    count = rng.randint(2, 4)
    kinds = rng.sample(ITEMS, count)
    numbers = [rng.randint(2, 9) for _ in kinds]
    colours = rng.sample(COLOURS, count)
    listed = ", ".join(
        f"{n} {colour} {kind[1]}" for n, colour, kind in zip(numbers, colours, kinds, strict=True)
    )
    name = rng.choice(GIRLS + BOYS)
    prompt = f"On {name}'s table there are {listed}. "
    if rng.random() < 0.5:
        prompt += "How many things are there altogether?"
        total = sum(numbers)
        answer = f"{' + '.join(map(str, numbers))} = {total}.\nThere are {total} things."
    else:
        gone = rng.randrange(count)
        rest = [n for i, n in enumerate(numbers) if i != gone]
        prompt += f"All the {colours[gone]} things are taken away. How many are left?"
        left = f"{' + '.join(map(str, rest))} = {sum(rest)}" if len(rest) > 1 else str(rest[0])
        answer = f"{capital(kinds[gone][1])} are gone.\n{left}.\nThere are {sum(rest)} things left."
    return Sample("logic", "count_objects", listed, prompt, answer)


GENERATORS = (
    (order, 3.0),
    (swaps, 3.0),
    (boolean, 1.0),
    (walk, 2.0),
    (rule, 2.0),
    (count_objects, 2.0),
)
