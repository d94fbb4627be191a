"""Arithmetic tasks, solved line by line and ending in '#### N'."""

from __future__ import annotations

import random

from training.demo_corpus.lexicon import ITEMS, person
from training.demo_corpus.rows import Sample
from training.demo_corpus.word_problems import (
    ages,
    change_story,
    compare,
    containers,
    rate,
    shopping,
    solved,
)


def percent(rng: random.Random) -> Sample:
    rate_, total = rng.choice([5, 10, 20, 25, 30, 40, 50, 60, 75]), rng.randint(1, 25) * 20
    part = rate_ * total // 100
    thing = rng.choice(ITEMS)[1]
    name, he, _, _ = person(rng)
    group = f"{name}/{rate_}/{total}"
    form = rng.randrange(3)
    if form == 0:
        prompt = f"A shop sells a set of {thing} for ${total} and takes {rate_}% off. "
        prompt += f"What does {name} pay for the set?"
        lines = [
            f"The discount is ${total} x {rate_}/100 = ${part}.",
            f"{name} pays ${total} - ${part} = ${total - part}.",
        ]
        return solved("percent", group, prompt, lines, total - part)
    if form == 1:
        prompt = f"{name} has {total} {thing} and {rate_}% of them are "
        prompt += f"{rng.choice(['new', 'blue', 'old'])}. How many is that?"
        return solved("percent", group, prompt, [f"{total} x {rate_}/100 = {part}."], part)
    prompt = f"{name} earns ${total} a week and saves {rate_}% of it. "
    prompt += f"How much does {he} save in 4 weeks?"
    lines = [
        f"In one week {he} saves ${total} x {rate_}/100 = ${part}.",
        f"In 4 weeks {he} saves 4 x ${part} = ${4 * part}.",
    ]
    return solved("percent", group, prompt, lines, 4 * part)


def geometry(rng: random.Random) -> Sample:
    place = rng.choice(["garden", "room", "field", "yard", "floor", "wall", "pool", "carpet"])
    width, height = rng.randint(2, 30), rng.randint(2, 30)
    unit, price = rng.choice(["metres", "feet"]), rng.randint(2, 20)
    group = f"{place}/{width}/{height}"
    start = f"A rectangular {place} is {width} {unit} wide and {height} {unit} long. "
    area, around = width * height, 2 * (width + height)
    form = rng.randrange(3)
    if form == 0:
        lines = [f"The area is {width} x {height} = {area} square {unit}."]
        return solved("geometry", group, f"{start}What is its area?", lines, area)
    sums = [
        f"{width} + {height} = {width + height}.",
        f"The perimeter is 2 x {width + height} = {around} {unit}.",
    ]
    if form == 1:
        return solved("geometry", group, f"{start}What is its perimeter?", sums, around)
    prompt = f"{start}A fence around it costs ${price} for each of the {unit}. "
    prompt += "How much does the fence cost?"
    sums.append(f"The fence costs {around} x ${price} = ${around * price}.")
    return solved("geometry", group, prompt, sums, around * price)


def expression(rng: random.Random) -> Sample:
    """An expression, reduced one operation per line."""
    a, b, c, d = (rng.randint(2, 30) for _ in range(4))
    form = rng.randrange(5)
    if form == 0:
        text, steps, value = f"{a} + {b} x {c}", [f"{b} x {c} = {b * c}"], a + b * c
        steps.append(f"{a} + {b * c} = {value}")
    elif form == 1:
        text, steps, value = f"({a} + {b}) x {c}", [f"{a} + {b} = {a + b}"], (a + b) * c
        steps.append(f"{a + b} x {c} = {value}")
    elif form == 2:
        text, value = f"{a} + {b} - {c} + {d}", a + b - c + d
        steps = [
            f"{a} + {b} = {a + b}",
            f"{a + b} - {c} = {a + b - c}",
            f"{a + b - c} + {d} = {value}",
        ]
    elif form == 3:
        text, value = f"{a * b} / {a} + {c}", b + c
        steps = [f"{a * b} / {a} = {b}", f"{b} + {c} = {value}"]
    else:
        text, value = f"{a} x {b} - {c} x {d}", a * b - c * d
        steps = [f"{a} x {b} = {a * b}", f"{c} x {d} = {c * d}", f"{a * b} - {c * d} = {value}"]
    ask = rng.choice(["Calculate {}.", "What is {}?", "Work out {} step by step.", "Evaluate: {}"])
    return solved("expression", text, ask.format(text), steps, value)


def equation(rng: random.Random) -> Sample:
    """A linear equation, solved line by line."""
    letter = rng.choice("xyznabmt")
    value, factor, shift = rng.randint(1, 30), rng.randint(2, 12), rng.randint(1, 50)
    if rng.random() < 0.5:
        right, text = factor * value + shift, f"{factor}{letter} + {shift}"
        first = f"{factor}{letter} = {right} - {shift} = {factor * value}"
    else:
        right, text = factor * value - shift, f"{factor}{letter} - {shift}"
        first = f"{factor}{letter} = {right} + {shift} = {factor * value}"
    full = f"{text} = {right}"
    ask = rng.choice(
        ["Solve for {v}: {e}", "Find {v} if {e}.", "What is {v} in the equation {e}?"]
    ).format(v=letter, e=full)
    lines = [full, first, f"{letter} = {factor * value} / {factor} = {value}"]
    return solved("equation", full, ask, lines, value)


GENERATORS = (
    (change_story, 4.0),
    (shopping, 3.0),
    (containers, 2.0),
    (compare, 2.0),
    (rate, 2.0),
    (ages, 1.0),
    (percent, 1.5),
    (geometry, 1.5),
    (expression, 2.0),
    (equation, 2.0),
)
