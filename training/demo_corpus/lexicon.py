"""Words that several generators draw from."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import random

GIRLS = (
    "Anna Maria Sofia Emma Lily Grace Nora Clara Ruth Ivy Zoe Mia Leah Alice Hannah Julia Rosa "
    "Elena Priya Mei Yuki Fatima Amara Ingrid Bella Tessa Paula Dora Olga Nina Carmen Wendy"
).split()
BOYS = (
    "Tom Ben Jack Leo Sam Max Noah Omar Luca Hugo Peter David Carlos Ivan Kenji Ravi Amir Felix "
    "Oscar Victor Martin Paul George Henry Adam Simon Diego Marco Erik Theo Walter Jonas"
).split()
SURNAMES = (
    "Miller Garcia Brown Keller Novak Rossi Tanaka Silva Okafor Jensen Dubois Walker Patel Kim "
    "Weber Moreno Clark Haddad Olsen Ferrari Murphy Lopez Young Fischer"
).split()
CITIES = (
    "Lisbon Paris Oslo Vienna Prague Madrid Dublin Athens Rome Berlin Cairo Lima Boston Chicago "
    "Denver Seattle Toronto Sydney Kyoto Seoul Delhi Nairobi Bergen Porto Austin Havana"
).split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
COLOURS = "red blue green yellow purple orange black white brown pink grey silver".split()
ADJECTIVES = (
    "small big old new bright quiet wooden heavy soft round broken clean tall strange golden "
    "warm cold shiny dusty lovely"
).split()

# singular, plural
ITEMS = [
    tuple(pair.split("/"))
    for pair in (
        "apple/apples book/books pencil/pencils marble/marbles sticker/stickers coin/coins "
        "stamp/stamps cookie/cookies balloon/balloons shell/shells card/cards flower/flowers "
        "orange/oranges candle/candles button/buttons ticket/tickets egg/eggs muffin/muffins "
        "toy/toys bottle/bottles notebook/notebooks lemon/lemons crayon/crayons bead/beads "
        "peach/peaches brush/brushes sandwich/sandwiches berry/berries cup/cups plate/plates "
        "chair/chairs stone/stones photo/photos puzzle/puzzles scarf/scarves magazine/magazines"
    ).split()
]
ANIMALS = (
    "dog cat rabbit fox owl mouse horse bear hedgehog turtle squirrel duck goat frog sparrow "
    "deer lamb donkey otter badger"
).split()
JOBS = (
    "baker teacher farmer doctor pilot carpenter painter gardener sailor nurse tailor "
    "librarian fisherman musician clockmaker cook driver postman engineer photographer"
).split()
PLACES = (
    "garden market library kitchen harbour forest park museum station bakery school village "
    "bridge river beach castle farm workshop theatre office"
).split()
CONTAINERS = ["box/boxes", "bag/bags", "basket/baskets", "jar/jars", "shelf/shelves", "tray/trays"]
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You are a helpful assistant. Answer briefly.",
    "You are a friendly and precise assistant.",
    "Answer the user's question as well as you can.",
    "You are an assistant that follows instructions exactly.",
    "You are SpecAdapt, a small language model that answers in plain words.",
    "Be concise and correct.",
    "You help people with everyday questions.",
)


def person(rng: random.Random) -> tuple[str, str, str, str]:
    """A name with its subject, object and possessive pronouns."""
    if rng.random() < 0.5:
        return rng.choice(GIRLS), "she", "her", "her"
    return rng.choice(BOYS), "he", "him", "his"


def two_names(rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(GIRLS + BOYS, 2)
    return first, second


def article(noun_phrase: str) -> str:
    return ("an " if noun_phrase[:1].lower() in "aeiou" else "a ") + noun_phrase


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def listing(parts: list[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    if len(parts) == 1:
        return parts[0]
    return ", ".join(parts[:-1]) + " and " + parts[-1]
