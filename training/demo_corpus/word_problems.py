"""Arithmetic told as a story, solved line by line and ending in '#### N'."""

from __future__ import annotations

import random

from training.demo_corpus.lexicon import CONTAINERS, ITEMS, PLACES, capital, person, two_names
from training.demo_corpus.rows import Sample


def solved(task: str, group: str, prompt: str, lines: list[str], answer: object) -> Sample:
    """A math sample whose answer ends in the line that graders read."""
    response = "\n".join([*lines, f"#### {answer}"])
    return Sample("math", task, f"{task}/{group}", prompt, response)


def _gain(
    rng: random.Random, name: str, he: str, his: str, things: str, now: int
) -> tuple[str, str, int]:
    amount = rng.randint(2, 60)
    text = rng.choice(
        [
            f"{capital(he)} buys {amount} more {things}.",
            f"Then {he} finds {amount} {things}.",
            f"{capital(his)} friend gives {name} {amount} {things}.",
            f"Later {name} gets another {amount} {things}.",
        ]
    )
    return text, f"{now} + {amount} = {now + amount}", now + amount


def _loss(
    rng: random.Random, name: str, he: str, his: str, things: str, now: int
) -> tuple[str, str, int]:
    amount = rng.randint(1, max(1, now - 1))
    text = rng.choice(
        [
            f"{capital(he)} gives {amount} {things} to {his} sister.",
            f"Then {name} loses {amount} {things}.",
            f"{capital(he)} sells {amount} of them.",
            f"{amount} of the {things} go missing.",
        ]
    )
    return text, f"{now} - {amount} = {now - amount}", now - amount


def _multiply(
    rng: random.Random, name: str, he: str, his: str, things: str, now: int
) -> tuple[str, str, int]:
    factor = rng.choice([2, 2, 3, 4])
    word = {2: "doubles", 3: "triples", 4: "quadruples"}[factor]
    text = rng.choice(
        [f"The next day {he} {word} the number of {things}.", f"{name} then {word} {his} {things}."]
    )
    return text, f"{now} x {factor} = {now * factor}", now * factor


def _halve(
    rng: random.Random, name: str, he: str, his: str, things: str, now: int
) -> tuple[str, str, int]:
    text = rng.choice(
        [
            f"Then {he} gives half of the {things} away.",
            f"{name} sells half of {his} {things}.",
        ]
    )
    return text, f"{now} / 2 = {now // 2}", now // 2


def change_story(rng: random.Random) -> Sample:
    """A quantity that changes one to four times."""
    name, he, _, his = person(rng)
    thing = rng.choice(ITEMS)[1]
    now = rng.randint(5, 90)
    place = rng.choice(PLACES)
    opening = rng.choice(
        [
            f"{name} has {now} {thing}.",
            f"{name} starts with {now} {thing}.",
            f"At the {place}, {name} collects {now} {thing}.",
            f"There are {now} {thing} in {name}'s {place}.",
        ]
    )
    sentences, lines = [opening], []
    for _ in range(rng.randint(1, 4)):
        kinds = [_gain, _gain]
        if now > 3:
            kinds += [_loss, _loss]
        if now < 200:
            kinds.append(_multiply)
        if now > 2 and now % 2 == 0:
            kinds.append(_halve)
        text, sums, now = rng.choice(kinds)(rng, name, he, his, thing, now)
        sentences.append(text)
        lines.append(rng.choice([f"{name} now has {sums} {thing}.", f"That makes {sums} {thing}."]))
    question = rng.choice(
        [
            f"How many {thing} does {name} have now?",
            f"How many {thing} are left in the end?",
            f"How many {thing} does {he} have at the end?",
        ]
    )
    group = f"{thing}/{name}/{len(lines)}"
    return solved("change_story", group, " ".join([*sentences, question]), lines, now)


def shopping(rng: random.Random) -> Sample:
    """A purchase of several goods, maybe with change or a discount."""
    name, he, _, his = person(rng)
    goods = rng.sample(ITEMS, rng.randint(1, 3))
    counts = [rng.randint(2, 12) for _ in goods]
    prices = [rng.randint(1, 15) for _ in goods]
    parts = [
        f"{count} {thing[1]} for ${price} each"
        for count, price, thing in zip(counts, prices, goods, strict=True)
    ]
    bought = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    verb = rng.choice(["buys", "orders", "pays for"])
    lines = [
        f"The {thing[1]} cost {count} x ${price} = ${count * price}."
        for count, price, thing in zip(counts, prices, goods, strict=True)
    ]
    costs = [count * price for count, price in zip(counts, prices, strict=True)]
    total = sum(costs)
    if len(goods) > 1:
        lines.append(f"The total is {' + '.join(f'${cost}' for cost in costs)} = ${total}.")
    prompt = f"{name} {verb} {bought}."
    group = f"{name}/{'+'.join(thing[0] for thing in goods)}"
    form = rng.randrange(3)
    if form == 0:
        return solved("shopping", group, f"{prompt} How much does {he} spend?", lines, total)
    if form == 1:
        paid = total + rng.randint(1, 40)
        lines.append(f"{capital(he)} gets ${paid} - ${total} = ${paid - total} back.")
        question = f"{capital(he)} pays with ${paid}. How much change does {he} get?"
        return solved("shopping", group, f"{prompt} {question}", lines, paid - total)
    off = rng.randint(1, max(1, total // 3))
    lines.append(f"With the coupon {he} pays ${total} - ${off} = ${total - off}.")
    question = f"{capital(he)} uses a coupon for ${off} off {his} total. How much does {he} pay?"
    return solved("shopping", group, f"{prompt} {question}", lines, total - off)


def containers(rng: random.Random) -> Sample:
    """Equal groups, multiplied, shared out or with a remainder."""
    name, he, _, _ = person(rng)
    thing = rng.choice(ITEMS)[1]
    box, boxes = rng.choice(CONTAINERS).split("/")
    n, each = rng.randint(2, 15), rng.randint(2, 20)
    group = f"{name}/{thing}/{box}"
    form = rng.randrange(4)
    if form == 0:
        prompt = f"{name} has {n} {boxes} with {each} {thing} in each {box}. "
        prompt += rng.choice(["How many", "In total, how many"])
        prompt += f" {thing} does {name} have?"
        lines = [f"There are {n} x {each} = {n * each} {thing}."]
        return solved("containers", group, prompt, lines, n * each)
    if form == 1:
        prompt = f"{name} puts {n * each} {thing} into {n} {boxes} so that each {box} holds the "
        prompt += f"same number. How many {thing} are in each {box}?"
        lines = [f"Each {box} holds {n * each} / {n} = {each} {thing}."]
        return solved("containers", group, prompt, lines, each)
    extra = rng.randint(1, 30)
    if form == 2:
        prompt = f"{name} fills {n} {boxes} with {each} {thing} each and has {extra} {thing} left "
        prompt += f"over. How many {thing} did {he} have at first?"
        lines = [
            f"The {boxes} hold {n} x {each} = {n * each} {thing}.",
            f"With the rest that is {n * each} + {extra} = {n * each + extra} {thing}.",
        ]
        return solved("containers", group, prompt, lines, n * each + extra)
    rest = rng.randint(1, each - 1)
    total = n * each + rest
    prompt = f"A {box} holds {each} {thing}. {name} has {total} {thing} and fills as many {boxes} "
    prompt += f"as {he} can. How many {thing} remain?"
    lines = [
        f"{n} x {each} = {n * each}, so {he} fills {n} {boxes}.",
        f"{total} - {n * each} = {rest} {thing} remain.",
    ]
    return solved("containers", group, prompt, lines, rest)


def compare(rng: random.Random) -> Sample:
    """Two or three people whose quantities are told relative to each other."""
    first, second = two_names(rng)
    thing = rng.choice(ITEMS)[1]
    base, diff, factor = rng.randint(4, 60), rng.randint(1, 30), rng.randint(2, 6)
    group = f"{first}/{second}/{thing}"
    if rng.random() < 0.5:
        other, told = base + diff, f"{diff} more {thing} than {first}"
        line = f"{second} has {base} + {diff} = {other} {thing}."
    else:
        words = {2: "twice as many", 3: "three times as many"}
        told = f"{words.get(factor, f'{factor} times as many')} {thing} as {first}"
        other = base * factor
        line = f"{second} has {base} x {factor} = {other} {thing}."
    prompt = f"{first} has {base} {thing}. {second} has {told}. "
    form = rng.randrange(3)
    if form == 0:
        prompt += f"How many {thing} do they have together?"
        lines = [line, f"Together they have {base} + {other} = {base + other} {thing}."]
        return solved("compare", group, prompt, lines, base + other)
    if form == 1:
        prompt += f"How many {thing} does {second} have?"
        return solved("compare", group, prompt, [line], other)
    given = rng.randint(1, other - 1)
    prompt += f"{second} gives {given} {thing} away. How many {thing} does {second} have left?"
    lines = [line, f"{second} has {other} - {given} = {other - given} {thing} left."]
    return solved("compare", group, prompt, lines, other - given)


def rate(rng: random.Random) -> Sample:
    """Work or travel at a steady rate."""
    name, he, _, _ = person(rng)
    per, time, days = rng.randint(2, 60), rng.randint(2, 12), rng.randint(2, 7)
    forms = [
        ("drives", "kilometres", "hour"),
        ("types", "words", "minute"),
        ("reads", "pages", "hour"),
        ("earns", "dollars", "hour"),
        ("bakes", "loaves", "hour"),
        ("packs", "parcels", "hour"),
        ("walks", "metres", "minute"),
        ("plants", "trees", "day"),
    ]
    verb, unit, period = rng.choice(forms)
    group = f"{name}/{verb}/{per}"
    prompt = f"{name} {verb} {per} {unit} per {period}. "
    base = verb[:-1]
    form = rng.randrange(3)
    if form == 0:
        prompt += f"How many {unit} does {name} {base} in {time} {period}s?"
        lines = [f"In {time} {period}s {he} {verb} {time} x {per} = {time * per} {unit}."]
        return solved("rate", group, prompt, lines, time * per)
    if form == 1:
        prompt += f"How many {period}s does {he} need for {time * per} {unit}?"
        lines = [f"{capital(he)} needs {time * per} / {per} = {time} {period}s."]
        return solved("rate", group, prompt, lines, time)
    if period == "day":
        period, prompt = "hour", f"{name} {verb} {per} {unit} per hour. "
    prompt += f"{capital(he)} does this for {time} {period}s every day. "
    prompt += f"How many {unit} is that in {days} days?"
    daily = time * per
    lines = [
        f"In one day {he} {verb} {time} x {per} = {daily} {unit}.",
        f"In {days} days {he} {verb} {days} x {daily} = {days * daily} {unit}.",
    ]
    return solved("rate", group, prompt, lines, days * daily)


def ages(rng: random.Random) -> Sample:
    first, second = two_names(rng)
    age, years = rng.randint(4, 50), rng.randint(2, 15)
    diff = rng.randint(2, 20)
    group = f"{first}/{second}/{age}"
    relation, sign = rng.choice([("older", 1), ("younger", -1)])
    if age - diff < 1:
        relation, sign = "older", 1
    other = age + sign * diff
    symbol = "+" if sign > 0 else "-"
    prompt = f"{first} is {age} years old. {second} is {diff} years {relation} than {first}. "
    lines = [f"{second} is {age} {symbol} {diff} = {other} years old."]
    if rng.random() < 0.5:
        prompt += f"How old will {second} be in {years} years?"
        lines.append(f"In {years} years {second} will be {other} + {years} = {other + years}.")
        return solved("ages", group, prompt, lines, other + years)
    prompt += "What is the sum of their ages?"
    lines.append(f"The sum is {age} + {other} = {age + other}.")
    return solved("ages", group, prompt, lines, age + other)
