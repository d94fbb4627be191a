"""Sentences in English, Spanish, German and French from one lexicon with genders and cases."""

from __future__ import annotations

import random

from training.demo_corpus.lexicon import BOYS, CITIES, GIRLS, capital
from training.demo_corpus.phrasebook import (
    ACTS,
    DAYS,
    LANGUAGES,
    NUMBERS,
    PHRASES,
    QUALITIES,
    THINGS,
    Noun,
)
from training.demo_corpus.rows import Sample

Sentence = dict[str, str]


def _fr_the(noun: Noun) -> str:
    word, _, gender = noun.fr
    if word[0] in "aeéhiou":
        return f"l'{word}"
    return f"{'le' if gender == 'm' else 'la'} {word}"


def _the(noun: Noun, quality: tuple[str, ...] | None = None, case: str = "nom") -> Sentence:
    """A definite singular phrase; `case` matters in German."""
    es, fr = ("el" if noun.es[2] == "m" else "la"), _fr_the(noun)
    de = {"m": "der" if case == "nom" else "den", "f": "die", "n": "das"}[noun.de[2]]
    if quality is None:
        return {"en": f"the {noun.en[0]}", "es": f"{es} {noun.es[0]}", "de": f"{de} {noun.de[0]}",
                "fr": fr}  # fmt: skip
    feminine_es, feminine_fr = noun.es[2] == "f", noun.fr[2] == "f"
    stem = "teur" if quality[2] == "teuer" else quality[2]
    ending = "en" if case == "acc" and noun.de[2] == "m" else "e"
    return {
        "en": f"the {quality[0]} {noun.en[0]}",
        "es": f"{es} {noun.es[0]} {quality[1].split('/')[feminine_es]}",
        "de": f"{de} {stem}{ending} {noun.de[0]}",
        "fr": f"{fr} {quality[3].split('/')[feminine_fr]}",
    }


def _a(noun: Noun, case: str = "acc") -> Sentence:
    en = ("an " if noun.en[0][0] in "aeiou" else "a ") + noun.en[0]
    de = {"m": "ein" if case == "nom" else "einen", "f": "eine", "n": "ein"}[noun.de[2]]
    return {
        "en": en,
        "es": f"{'un' if noun.es[2] == 'm' else 'una'} {noun.es[0]}",
        "de": f"{de} {noun.de[0]}",
        "fr": f"{'un' if noun.fr[2] == 'm' else 'une'} {noun.fr[0]}",
    }


def _is(rng: random.Random) -> Sentence:
    noun, quality = rng.choice(THINGS), rng.choice(QUALITIES)
    the = _the(noun)
    return {
        "en": f"{the['en']} is {quality[0]}.",
        "es": f"{the['es']} {'está' if quality[0] in ('clean', 'broken') else 'es'} "
        f"{quality[1].split('/')[noun.es[2] == 'f']}.",
        "de": f"{the['de']} ist {quality[2]}.",
        "fr": f"{the['fr']} est {quality[3].split('/')[noun.fr[2] == 'f']}.",
    }


def _is_where(rng: random.Random) -> Sentence:
    noun, where = rng.choice(THINGS), rng.choice(PHRASES)
    quality = rng.choice([None, *QUALITIES])
    the = _the(noun, quality)
    return {
        "en": f"{the['en']} is {where['en']}.",
        "es": f"{the['es']} está {where['es']}.",
        "de": f"{the['de']} ist {where['de']}.",
        "fr": f"{the['fr']} est {where['fr']}.",
    }


def _did(rng: random.Random) -> Sentence:
    """Somebody did something to a thing, maybe on a day."""
    name, act, noun = rng.choice(GIRLS + BOYS), rng.choice(ACTS), rng.choice(THINGS)
    thing = _a(noun) if rng.random() < 0.4 else _the(noun, rng.choice([None, *QUALITIES]), "acc")
    when = rng.choice([None, *DAYS])
    where = rng.choice([None, None, *PHRASES])
    tail = dict.fromkeys(LANGUAGES, "")
    front = ""
    if where:
        tail = {key: f" {where[key]}" for key in LANGUAGES}
    subject = f"{name} hat"
    if when:
        tail = {key: f"{tail[key]} {when[key]}" for key in LANGUAGES}
        tail["de"] = f" {where['de']}" if where else ""
        front, subject = f"{when['de']} ", f"hat {name}"
    return {
        "en": f"{name} {act[1]} {thing['en']}{tail['en']}.",
        "es": f"{name} {act[2]} {thing['es']}{tail['es']}.",
        "de": f"{front}{subject} {thing['de']}{tail['de']} {act[4]}.",
        "fr": f"{name} a {act[6]} {thing['fr']}{tail['fr']}.",
    }


def _want(rng: random.Random) -> Sentence:
    act, noun = rng.choice(ACTS), rng.choice(THINGS)
    thing = _a(noun) if rng.random() < 0.5 else _the(noun, None, "acc")
    who = rng.randrange(3)
    name = rng.choice(GIRLS + BOYS)
    en = ("I want to", "we want to", f"{name} wants to")[who]
    es = ("quiero", "queremos", f"{name} quiere")[who]
    de = ("ich will", "wir wollen", f"{name} will")[who]
    fr = ("je veux", "nous voulons", f"{name} veut")[who]
    return {
        "en": f"{en} {act[0]} {thing['en']}.",
        "es": f"{es} {act[3]} {thing['es']}.",
        "de": f"{de} {thing['de']} {act[5]}.",
        "fr": f"{fr} {act[7]} {thing['fr']}.",
    }


def _has(rng: random.Random) -> Sentence:
    name, noun, n = rng.choice(GIRLS + BOYS), rng.choice(THINGS), rng.randrange(11)
    count = {key: words[n] for key, words in NUMBERS.items()}
    if rng.random() < 0.4:
        count = {key: str(n + 2 + rng.randint(0, 1) * 11) for key in LANGUAGES}
        count = dict.fromkeys(LANGUAGES, count["en"])
    return {
        "en": f"{name} has {count['en']} {noun.en[1]}.",
        "es": f"{name} tiene {count['es']} {noun.es[1]}.",
        "de": f"{name} hat {count['de']} {noun.de[1]}.",
        "fr": f"{name} a {count['fr']} {noun.fr[1]}.",
    }


def _price(rng: random.Random) -> Sentence:
    noun, price = rng.choice(THINGS), rng.randint(2, 99)
    the = _the(noun)
    if rng.random() < 0.5:
        return {
            "en": f"how much does {the['en']} cost?",
            "es": f"¿cuánto cuesta {the['es']}?",
            "de": f"wie viel kostet {the['de']}?",
            "fr": f"combien coûte {the['fr']} ?",
        }
    return {
        "en": f"{the['en']} costs {price} euros.",
        "es": f"{the['es']} cuesta {price} euros.",
        "de": f"{the['de']} kostet {price} Euro.",
        "fr": f"{the['fr']} coûte {price} euros.",
    }


def _where(rng: random.Random) -> Sentence:
    the = _the(rng.choice(THINGS), rng.choice([None, None, *QUALITIES]))
    return {
        "en": f"where is {the['en']}?",
        "es": f"¿dónde está {the['es']}?",
        "de": f"wo ist {the['de']}?",
        "fr": f"où est {the['fr']} ?",
    }


def _lives(rng: random.Random) -> Sentence:
    city = rng.choice(["Berlin", "Madrid", "Paris", "Boston", "Toronto", "Lima", "Porto", "Austin"])
    name, age = rng.choice(GIRLS + BOYS), rng.randint(5, 90)
    if rng.random() < 0.5:
        return {
            "en": f"{name} lives in {city}.",
            "es": f"{name} vive en {city}.",
            "de": f"{name} wohnt in {city}.",
            "fr": f"{name} habite à {city}.",
        }
    return {
        "en": f"{name} is {age} years old.",
        "es": f"{name} tiene {age} años.",
        "de": f"{name} ist {age} Jahre alt.",
        "fr": f"{name} a {age} ans.",
    }


def _sum_problem(rng: random.Random) -> Sentence:
    """A word problem as in the corpus' translation rows: never solved, only translated."""
    name, noun = rng.choice(GIRLS + BOYS), rng.choice(THINGS)
    n, price = rng.randint(2, 20), rng.randint(2, 30)
    return {
        "en": f"{name} buys {n} {noun.en[1]} for {price} dollars each. How much do the "
        f"{noun.en[1]} cost in total?",
        "es": f"{name} compra {n} {noun.es[1]} por {price} dólares cada "
        f"{'uno' if noun.es[2] == 'm' else 'una'}. ¿Cuánto cuestan "
        f"{'los' if noun.es[2] == 'm' else 'las'} {noun.es[1]} en total?",
        "de": f"{name} kauft {n} {noun.de[1]} für je {price} Dollar. Wie viel kosten die "
        f"{noun.de[1]} insgesamt?",
        "fr": f"{name} achète {n} {noun.fr[1]} à {price} dollars "
        f"{'chacun' if noun.fr[2] == 'm' else 'chacune'}. Combien coûtent les {noun.fr[1]} "
        "au total ?",
    }


_FORMS = (_is, _is_where, _did, _did, _did, _want, _has, _price, _where, _lives, _sum_problem)


def _finish(text: str) -> str:
    if text.startswith("¿"):
        return "¿" + capital(text[1:])
    return capital(text)


def translate(rng: random.Random) -> Sample:
    sentences = [rng.choice(_FORMS)(rng) for _ in range(rng.choice([1, 1, 2, 2, 3, 4]))]
    texts = {key: " ".join(_finish(item[key]) for item in sentences) for key in LANGUAGES}
    other = rng.choice(["es", "de", "fr"])
    source, target = ("en", other) if rng.random() < 0.5 else (other, "en")
    if rng.random() < 0.1:
        source, target = rng.sample(["es", "de", "fr"], 2)
    ask = rng.choice(
        [
            f"Translate {LANGUAGES[source]} to {LANGUAGES[target]}: {texts[source]}",
            f"Translate {LANGUAGES[source]} to {LANGUAGES[target]}: {texts[source]}",
            f"Translate this into {LANGUAGES[target]}.\n{texts[source]}",
            f"How do you say this in {LANGUAGES[target]}? {texts[source]}",
        ]
    )
    return Sample("translation", "translate", texts["en"], ask, texts[target])


def language_of(rng: random.Random) -> Sample:
    """Name the language of a sentence, so that the prompt's language is read at all."""
    sentence = rng.choice(_FORMS)(rng)
    key = rng.choice(sorted(LANGUAGES))
    city = rng.choice(CITIES)
    text = _finish(sentence[key])
    prompt = f"Which language is this sentence from {city} written in, and what does it say in "
    prompt += f"English? {text}"
    answer = f"It is {LANGUAGES[key]}: {_finish(sentence['en'])}"
    return Sample("translation", "language_of", _finish(sentence["en"]), prompt, answer)


GENERATORS = ((translate, 9.0), (language_of, 0.7))
