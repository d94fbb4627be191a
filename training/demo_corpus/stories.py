"""Short stories: a hero, a wish, a trouble, a helper, a lesson."""

from __future__ import annotations

import random

from training.demo_corpus.lexicon import (
    ADJECTIVES,
    ANIMALS,
    DAYS,
    JOBS,
    PLACES,
    article,
    capital,
    person,
)
from training.demo_corpus.rows import Sample

_WISHES = (
    ("see the sea", "the sea", "saw the sea at last"),
    ("learn to fly a kite", "the kite", "flew the kite high above the roofs"),
    ("find a lost key", "the key", "found the key under an old stone"),
    ("bake the best bread in town", "the bread", "baked a loaf that everyone loved"),
    ("build a little boat", "the boat", "sailed the boat across the water"),
    ("play the violin", "the violin", "played a song that made people smile"),
    ("climb the highest hill", "the hill", "stood on top of the hill"),
    ("make a new friend", "a friend", "had a friend to talk to every day"),
    ("grow a rose in winter", "the rose", "saw a red rose open in the snow"),
    ("repair the old clock", "the clock", "heard the clock strike again"),
    ("write a letter to the moon", "the letter", "sent the letter with the wind"),
    ("paint the sunset", "the picture", "painted the whole sky in gold"),
    ("win the village race", "the race", "crossed the line before all the others"),
    ("read every book in the library", "the books", "closed the last book with a smile"),
)
_TROUBLES = (
    "a storm came and the rain would not stop",
    "nobody believed that it could be done",
    "the road was long and the night was dark",
    "the first try failed",
    "there was not enough money",
    "a wall stood in the way",
    "the snow covered everything",
    "the map was torn in two",
    "the others only laughed",
    "the bridge was closed",
)
_LESSONS = (
    "small steps lead to great places",
    "a good friend is worth more than gold",
    "patience is stronger than hurry",
    "courage grows when it is shared",
    "it is never too late to begin",
    "kindness always comes back",
    "asking for help is no shame",
    "mistakes are good teachers",
)
_HELP = (
    "showed {him} another way",
    "lent {him} a lantern and a rope",
    "shared a warm soup and good advice",
    "worked beside {him} until the morning",
    "told {him} not to give up",
    "knew a secret path behind the {place}",
)


def _hero(rng: random.Random) -> tuple[str, str, str, str, str]:
    name, he, him, _ = person(rng)
    if rng.random() < 0.5:
        return name, he, him, f"{rng.choice(ADJECTIVES)} {rng.choice(ANIMALS)}", "named"
    return name, he, him, f"young {rng.choice(JOBS)}", "called"


def story(rng: random.Random) -> Sample:
    name, he, him, kind, called = _hero(rng)
    wish, thing, success = rng.choice(_WISHES)
    place, trouble = rng.choice(PLACES), rng.choice(_TROUBLES)
    helper, lesson = rng.choice([*ANIMALS, *JOBS]), rng.choice(_LESSONS)
    help_ = rng.choice(_HELP).format(him=him, place=rng.choice(PLACES))
    start = rng.choice(
        [
            f"Once upon a time there was {article(kind)} {called} {name} who lived near a {place}.",
            f"In {article(rng.choice(ADJECTIVES))} {place} lived {article(kind)} {called} {name}.",
            f"{name} was {article(kind)} who lived beside the {place}.",
            f"Long ago, near a quiet {place}, there lived {article(kind)} {called} {name}.",
        ]
    )
    middle = [
        rng.choice(
            [
                f"More than anything, {name} wanted to {wish}.",
                f"Every night {he} dreamed of one thing: to {wish}.",
                f"{name} had only one wish, to {wish}.",
            ]
        ),
        rng.choice(
            [
                f"One {rng.choice(DAYS)} {he} set out, but {trouble}.",
                f"{capital(he)} tried and tried, but {trouble}.",
                f"But {trouble}, and {name} sat down and cried.",
            ]
        ),
        rng.choice(
            [
                f"Then an old {helper} came by and {help_}.",
                f"A friendly {helper} heard about it and {help_}.",
                f"Luckily {article(helper)} was passing and {help_}.",
            ]
        ),
    ]
    if rng.random() < 0.5:
        middle.append(
            rng.choice(
                [
                    f"Together they thought about {thing} all night.",
                    f"'We can do it,' said the {helper}, and {name} believed it.",
                    f"'Thank you,' said {name}, and {he} began again.",
                ]
            )
        )
    end = rng.choice(
        [
            f"In the end {name} {success}, and {he} learned that {lesson}.",
            f"At last {he} {success}. From that day on {name} knew that {lesson}.",
            f"The next morning {name} {success}. 'Now I know,' {he} said, 'that {lesson}.'",
        ]
    )
    prompt = rng.choice(
        [
            f"Write a short story about {article(kind)} {called} {name} who wants to {wish}.",
            f"Tell me a short story about {name}, {article(kind)}, who wants to {wish}.",
            f"Write a story about {name}, {article(kind)}, and {article(helper)}.",
            f"Write a short tale about {article(kind)} {called} {name} with the lesson "
            f"that {lesson}.",
        ]
    )
    group = f"story/{kind}/{wish}/{helper}"
    return Sample("creative", "story", group, prompt, " ".join([start, *middle, end]))
