"""Records as tables, CSV, JSON and sentences, and calls of described tools."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import json
import random

from training.demo_corpus.lexicon import (
    BOYS,
    CITIES,
    COLOURS,
    DAYS,
    GIRLS,
    ITEMS,
    JOBS,
    MONTHS,
    SURNAMES,
    article,
    capital,
)
from training.demo_corpus.rows import Sample

Record = dict[str, str | int]


def _person(rng: random.Random) -> Record:
    name = f"{rng.choice(GIRLS + BOYS)} {rng.choice(SURNAMES)}"
    return {
        "name": name,
        "age": rng.randint(18, 80),
        "city": rng.choice(CITIES),
        "job": rng.choice(JOBS),
    }


def _product(rng: random.Random) -> Record:
    return {
        "product": rng.choice(ITEMS)[0],
        "price": rng.randint(1, 90),
        "stock": rng.randint(0, 200),
        "colour": rng.choice(COLOURS),
    }


def _event(rng: random.Random) -> Record:
    return {
        "event": rng.choice("concert lecture market meeting race wedding workshop fair".split()),
        "day": rng.choice(DAYS),
        "city": rng.choice(CITIES),
        "guests": rng.randint(5, 400),
    }


_SENTENCES = {
    "name": "{name} is {age} years old, lives in {city} and works as {a_job}.",
    "product": "The {product} costs {price} dollars, its colour is {colour} and {stock} are "
    "in stock.",
    "event": "The {event} takes place in {city} on {day} with {guests} guests.",
}


def _records(rng: random.Random, count: int) -> list[Record]:
    kind = rng.choice([_person, _product, _event])
    keys = list(kind(rng))
    keep = [keys[0], *sorted(rng.sample(keys[1:], rng.randint(2, 3)), key=keys.index)]
    return [{key: record[key] for key in keep} for record in (kind(rng) for _ in range(count))]


def _full_record(rng: random.Random) -> tuple[Record, str]:
    record = rng.choice([_person, _product, _event])(rng)
    kind = next(iter(record))
    text = _SENTENCES[kind].format(a_job=article(str(record.get("job", ""))), **record)
    return record, text


def _csv(records: list[Record]) -> str:
    rows = [",".join(records[0])]
    rows += [",".join(str(value) for value in record.values()) for record in records]
    return "\n".join(rows)


def _markdown(records: list[Record]) -> str:
    rows = ["| " + " | ".join(records[0]) + " |", "|" + " --- |" * len(records[0])]
    rows += ["| " + " | ".join(str(x) for x in record.values()) + " |" for record in records]
    return "\n".join(rows)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent)


def _group(records: list[Record]) -> str:
    return "/".join(str(value) for value in list(records[0].values())[:2])


def convert(rng: random.Random) -> Sample:
    """One layout of a few records into another."""
    records = _records(rng, rng.randint(1, 4))
    layouts = {
        "CSV": _csv(records),
        "JSON": _json(records),
        "a Markdown table": _markdown(records),
    }
    given, wanted = rng.sample(sorted(layouts), 2)
    prompt = rng.choice(
        [f"Convert this {given.removeprefix('a ')} to {wanted}.", f"Write this as {wanted}."]
    )
    return Sample(
        "tool_use", "convert", _group(records), f"{prompt}\n{layouts[given]}", layouts[wanted]
    )


def to_json(rng: random.Random) -> Sample:
    record, text = _full_record(rng)
    prompt = rng.choice(
        [
            f"Extract the data as JSON with the keys {', '.join(record)}.",
            f"Turn this sentence into a JSON object ({', '.join(record)}).",
        ]
    )
    answer = _json(record, rng.choice([None, None, 2]))
    return Sample("tool_use", "to_json", _group([record]), f"{prompt}\n{text}", answer)


def to_text(rng: random.Random) -> Sample:
    record, text = _full_record(rng)
    prompt = rng.choice(["Write this record as a sentence.", "Describe this data in one sentence."])
    shown = rng.choice([_json(record), _csv([record])])
    return Sample("general", "to_text", _group([record]), f"{prompt}\n{shown}", text)


def look_up(rng: random.Random) -> Sample:
    """A question about one cell, row or column of a table."""
    records = _records(rng, rng.randint(3, 5))
    key, *others = records[0]
    while len({record[key] for record in records}) < len(records):
        records = _records(rng, rng.randint(3, 5))
        key, *others = records[0]
    column, record = rng.choice(others), rng.choice(records)
    form = rng.randrange(3)
    if form == 0:
        question = f"What is the {column} of {record[key]}?"
        answer = f"The {column} of {record[key]} is {record[column]}."
    elif form == 1:
        question = f"List the {column} of every {key}."
        answer = "\n".join(f"{row[key]}: {row[column]}" for row in records)
    else:
        numbers = [name for name in others if isinstance(record[name], int)]
        if not numbers:
            question, answer = "How many rows has the table?", f"It has {len(records)} rows."
        else:
            column = rng.choice(numbers)
            best = max(records, key=lambda row: int(row[column]))
            question = f"Which {key} has the highest {column}?"
            answer = f"{best[key]} has the highest {column}, {best[column]}."
    table = rng.choice([_markdown, _csv])(records)
    return Sample("general", "look_up", _group(records), f"{table}\n{question}", answer)


# tool, what it does, its arguments
_TOOLS = (
    ("get_weather", "Returns the weather of a city on a day.", ("city", "day")),
    ("send_email", "Sends an email.", ("to", "subject")),
    ("create_event", "Adds an event to the calendar.", ("title", "day", "time")),
    ("convert_currency", "Converts an amount of money.", ("amount", "source", "target")),
    ("search_products", "Searches the shop.", ("query", "max_price")),
    ("set_alarm", "Sets an alarm.", ("time", "label")),
    ("book_table", "Books a table in a restaurant.", ("restaurant", "people", "time")),
    ("translate", "Translates a text.", ("text", "language")),
    ("play_song", "Plays a song.", ("title", "artist")),
    ("find_train", "Finds a train.", ("origin", "destination", "day")),
)


def _request(rng: random.Random, tool: str) -> tuple[str, dict[str, str | int]]:
    city, day, name = rng.choice(CITIES), rng.choice(DAYS), rng.choice(GIRLS + BOYS)
    time = f"{rng.randint(6, 22)}:{rng.choice(['00', '15', '30', '45'])}"
    thing = rng.choice(ITEMS)[1]
    other = rng.choice([place for place in CITIES if place != city])
    amount = rng.randint(2, 500)
    money = rng.sample(["USD", "EUR", "GBP", "JPY", "CHF"], 2)
    title = rng.choice(["dentist", "team meeting", "yoga class", "dinner", "exam", "haircut"])
    language = rng.choice(["Spanish", "German", "French", "Italian", "Japanese"])
    greeting = rng.choice(["good morning", "thank you", "see you soon", "happy birthday"])
    song = rng.choice(["Blue River", "Paper Moon", "Silver Rain", "Last Train", "Summer Road"])
    requests: dict[str, tuple[str, dict[str, str | int]]] = {
        "get_weather": (f"What will the weather be like in {city} on {day}?",
                        {"city": city, "day": day}),
        "send_email": (f"Write to {name} about the {title}.", {"to": name, "subject": title}),
        "create_event": (f"Put the {title} into my calendar on {day} at {time}.",
                         {"title": title, "day": day, "time": time}),
        "convert_currency": (f"How much is {amount} {money[0]} in {money[1]}?",
                             {"amount": amount, "source": money[0], "target": money[1]}),
        "search_products": (f"Show me {thing} for at most {amount} dollars.",
                            {"query": thing, "max_price": amount}),
        "set_alarm": (f"Wake me at {time} for the {title}.", {"time": time, "label": title}),
        "book_table": (f"Book a table at {name}'s Kitchen for {amount % 9 + 2} people at {time}.",
                       {"restaurant": f"{name}'s Kitchen", "people": amount % 9 + 2, "time": time}),
        "translate": (f"How do you say '{greeting}' in {language}?",
                      {"text": greeting, "language": language}),
        "play_song": (f"Play {song} by {name}.", {"title": song, "artist": name}),
        "find_train": (f"I need a train from {city} to {other} on {day}.",
                       {"origin": city, "destination": other, "day": day}),
    }  # fmt: skip
    return requests[tool]


def call_tool(rng: random.Random) -> Sample:
    """Choose the right one of several described tools and fill its arguments, as JSON."""
    tools = rng.sample(_TOOLS, rng.randint(2, 4))
    tool = rng.choice(tools)
    request, arguments = _request(rng, tool[0])
    listed = "\n".join(f"- {name}({', '.join(keys)}): {what}" for name, what, keys in tools)
    ask = rng.choice(
        [
            'Answer with a JSON object {"tool": ..., "arguments": {...}}.',
            "Which tool call answers the request? Reply as JSON with tool and arguments.",
        ]
    )
    prompt = f"You can use these tools:\n{listed}\n{ask}\nRequest: {request}"
    answer = _json({"tool": tool[0], "arguments": arguments})
    return Sample("tool_use", "call_tool", f"{tool[0]}/{request}", prompt, answer)


def toolformer(rng: random.Random) -> Sample:
    """A call inside a sentence, in the layout of the corpus' tool_use rows."""
    name, _, _ = tool = rng.choice(_TOOLS)
    request, arguments = _request(rng, name)
    call = f"{name}({', '.join(repr(value) for value in arguments.values())})"
    prompt = f"toolformer: enabled\ntoolformer access: {name}\n{tool[1]}\n"
    prompt += f"{name}({', '.join(tool[2])})\n{request}"
    answer = rng.choice(["Here is the result: {}.", "Let me do that: {}.", "The answer is {}."])
    return Sample("tool_use", "toolformer", f"{name}/{request}", prompt, answer.format(call))


def fill_form(rng: random.Random) -> Sample:
    person = _person(rng)
    month, day = rng.choice(MONTHS), rng.randint(1, 28)
    fields = {
        "Name": person["name"],
        "City": person["city"],
        "Date": f"{day} {month}",
        "Tickets": rng.randint(1, 6),
    }
    text = f"Hello, this is {fields['Name']} from {fields['City']}. I would like to have "
    text += f"{fields['Tickets']} tickets for {day} {month}, please."
    blank = "\n".join(f"{key}:" for key in fields)
    prompt = f"Fill in the form from the message.\n{blank}\nMessage: {text}"
    answer = "\n".join(f"{key}: {value}" for key, value in fields.items())
    group = f"{fields['Name']}/{capital(month)}"
    return Sample("general", "fill_form", group, prompt, answer)


GENERATORS = (
    (convert, 2.0),
    (to_json, 2.0),
    (to_text, 1.5),
    (look_up, 2.0),
    (call_tool, 3.0),
    (toolformer, 2.0),
    (fill_form, 1.0),
)
