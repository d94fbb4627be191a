"""Stories, poems, letters and descriptions in coherent plain English."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import random

from training.demo_corpus.lexicon import (
    ADJECTIVES,
    ANIMALS,
    CITIES,
    COLOURS,
    DAYS,
    JOBS,
    PLACES,
    article,
    capital,
    listing,
    person,
)
from training.demo_corpus.rows import Sample
from training.demo_corpus.stories import story

_RHYMES = [
    group.split("/")
    for group in (
        "night/light/bright/sight/flight day/way/play/stay/grey tree/sea/free/bee/me "
        "sky/high/fly/by/goodbye rain/train/again/lane/plain moon/soon/tune/june/spoon "
        "snow/glow/slow/below/grow hill/still/mill/thrill/until song/long/along/strong/belong "
        "sun/run/fun/done/begun star/far/are/car/jar stream/dream/gleam/seem/team"
    ).split()
]
_LINE_STARTS = (
    "The {noun} is waiting for the",
    "A {adj} {noun} beside the",
    "I see the {noun} and think of",
    "And softly comes the",
    "The {adj} {noun} is dreaming of the",
    "We follow all the way the",
    "The wind is singing to the",
    "Oh {adj} {noun}, you and the",
)


def poem(rng: random.Random) -> Sample:
    topic = rng.choice([*ANIMALS, *PLACES])
    lines: list[str] = []
    rhymes: list[str] = []
    for rhyme in rng.sample(_RHYMES, rng.randint(1, 3)):
        pair = rng.sample(rhyme, 2)
        rhymes += pair
        for word in pair:
            noun = topic if rng.random() < 0.6 else rng.choice(PLACES)
            start = rng.choice(_LINE_STARTS).format(noun=noun, adj=rng.choice(ADJECTIVES))
            lines.append(f"{start} {word},")
    lines[-1] = lines[-1][:-1] + "."
    prompt = rng.choice(
        [
            f"Write a poem of {len(lines)} lines about {article(topic)}. "
            f"Rhyme {rhymes[0]} with {rhymes[1]}.",
            f"Write a short poem about the {topic} with the rhymes {listing(rhymes)}.",
            f"Write a rhyming poem about {article(topic)} in {len(lines)} lines, "
            f"the first ending in '{rhymes[0]}'.",
        ]
    )
    group = f"poem/{topic}/{'/'.join(rhymes[:2])}"
    return Sample("creative", "poem", group, prompt, "\n".join(lines))


def describe(rng: random.Random) -> Sample:
    place, city = rng.choice(PLACES), rng.choice(CITIES)
    adjective, colour = rng.choice(ADJECTIVES), rng.choice(COLOURS)
    sound = rng.choice(["birds", "bells", "waves", "children", "music", "rain", "footsteps"])
    smell = rng.choice(["fresh bread", "wet grass", "old paper", "coffee", "salt", "lavender"])
    sentences = [
        rng.choice(
            [
                f"The {place} in {city} is {adjective} and full of life.",
                f"On a quiet street of {city} you find {article(adjective)} {place}.",
                f"Whoever comes to {city} should visit the {adjective} {place}.",
            ]
        ),
        rng.choice(
            [
                f"Its walls are {colour}, and the air smells of {smell}.",
                f"It smells of {smell}, and {colour} flowers stand at the door.",
                f"A {colour} light falls through the windows, and there is a scent of {smell}.",
            ]
        ),
        rng.choice(
            [
                f"You can hear {sound} from far away.",
                f"In the background there are {sound}, soft and steady.",
                f"The sound of {sound} fills the afternoon.",
            ]
        ),
        rng.choice(
            [
                f"An old {rng.choice(JOBS)} sits there every {rng.choice(DAYS)} and tells stories.",
                f"{article(rng.choice(ANIMALS)).capitalize()} sleeps in the corner.",
                "Nobody is in a hurry here.",
                "It is a place where time goes slowly.",
            ]
        ),
    ]
    prompt = rng.choice(
        [
            f"Describe {article(adjective)} {place} in {city}.",
            f"Describe a {place} in {city} in a few sentences. Mention the smell of {smell}.",
            f"Paint a picture in words: a {place} in {city} with the sound of {sound}.",
        ]
    )
    group = f"describe/{place}/{city}"
    return Sample("creative", "describe", group, prompt, " ".join(sentences))


_OCCASIONS = (
    ("thank {to} for {gift}", "thank you so much for {gift}", "It was very kind of you."),
    ("invite {to} to a party on {day}", "I would like to invite you to my party on {day}",
     "There will be music and good food."),
    ("apologise to {to} for being late", "I am sorry that I was late on {day}",
     "It will not happen again."),
    ("congratulate {to} on the new job", "congratulations on your new job",
     "You have worked hard for it."),
    ("ask {to} for help with the {place}", "could you help me with the {place} on {day}",
     "I cannot do it alone."),
    ("tell {to} about a trip to {city}", "I have just come back from {city}",
     "The streets were beautiful and the people were friendly."),
)  # fmt: skip


def letter(rng: random.Random) -> Sample:
    sender, _, _, _ = person(rng)
    to, _, _, _ = person(rng)
    slots = {
        "to": to,
        "gift": rng.choice(["the lovely book", "the flowers", "your help", "the warm scarf"]),
        "day": rng.choice(DAYS),
        "place": rng.choice(PLACES),
        "city": rng.choice(CITIES),
    }
    ask, core, more = rng.choice(_OCCASIONS)
    kind = rng.choice(["letter", "email", "note"])
    prompt = f"Write a short {kind} from {sender} to {ask.format(**slots)}."
    opening = rng.choice([f"Dear {to},", f"Hello {to},", f"Hi {to},"])
    closing = rng.choice(["Best wishes,", "Yours,", "Kind regards,", "See you soon,"])
    wish = rng.choice(
        ["I hope you are well.", "I often think of you.", "How are you?", "Greetings to all."]
    )
    mark = "?" if core.startswith("could") else "."
    body = f"{capital(core.format(**slots))}{mark} {more} {wish}"
    answer = f"{opening}\n\n{body}\n\n{closing}\n{sender}"
    return Sample("creative", "letter", f"letter/{sender}/{to}/{ask[:8]}", prompt, answer)


def character(rng: random.Random) -> Sample:
    """'You are a ...' prompts, answered in the first person."""
    job, place, city = rng.choice(JOBS), rng.choice(PLACES), rng.choice(CITIES)
    animal, adjective = rng.choice(ANIMALS), rng.choice(ADJECTIVES)
    topic = rng.choice(["your day", "your favourite place", "your best friend", "your work"])
    opening = f"I am {article(job)} in {city}."
    answers = {
        "your day": f"I get up early and walk to the {place}. There I work until noon, and in the "
        f"afternoon I meet my friends. In the evening I read beside my {animal}.",
        "your favourite place": f"My favourite place is the {place}. It is {adjective} and calm, "
        f"and I go there every {rng.choice(DAYS)}. Sometimes {article(animal)} keeps me company.",
        "your best friend": f"My best friend is {article(adjective)} {animal}. We met near the "
        f"{place} many years ago. Since then we have shared every meal and every secret.",
        "your work": f"My work begins at the {place} before the sun is up. It is hard, but I like "
        f"it, because every day is different. My {animal} waits for me at home.",
    }
    prompt = rng.choice(
        [
            f"You are {article(job)} in {city}. Describe {topic}.",
            f"Imagine you are {article(job)} who lives in {city}. Tell me about {topic}.",
        ]
    )
    group = f"character/{job}/{city}/{topic}"
    return Sample("creative", "character", group, prompt, f"{opening} {answers[topic]}")


def slogan(rng: random.Random) -> Sample:
    product = rng.choice("tea bread shoes soap honey lamps chairs bicycles kites jam".split())
    maker = rng.choice(JOBS)
    words = rng.sample("fresh warm honest simple bright strong pure light sweet true".split(), 3)
    city = rng.choice(CITIES)
    prompt = f"Write a short advertisement for {product} from {article(maker)} in {city}."
    prompt += f" Use the words {listing(words)}."
    answer = rng.choice(
        [
            f"{capital(words[0])}, {words[1]} and {words[2]}: that is our {product} from {city}. "
            f"Made by {article(maker)} with love. Try it today!",
            f"Looking for something {words[0]} and {words[1]}? Our {product} from {city} will make "
            f"your day {words[2]}. Come and see the {maker}!",
        ]
    )
    return Sample("creative", "slogan", f"slogan/{product}/{maker}/{city}", prompt, answer)


GENERATORS = (
    (story, 5.0),
    (poem, 2.0),
    (describe, 2.5),
    (letter, 2.0),
    (character, 2.0),
    (slogan, 1.0),
)
