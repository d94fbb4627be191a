"""Edits of a given program or text: the answer repeats it with one change."""
# ruff: noqa: SIM905 (word lists read best as text)

from __future__ import annotations

import random
import re

from training.demo_corpus.lexicon import GIRLS
from training.demo_corpus.program import Program
from training.demo_corpus.program_families import any_program
from training.demo_corpus.prose import clause, paragraph
from training.demo_corpus.rows import Sample

_ONLY = ("Output only the code.", "Return only the code.", "Answer with the code only.", "")
_NEW_NAMES = (
    "result value entry current output buffer record source target amount series payload "
    "first_item temp_value new_name user_input final_result my_list raw_data accumulator helper"
).split()
_BUGS = (
    ("+=", "-="),
    ("==", "!="),
    (" > ", " < "),
    (" < ", " > "),
    (" * ", " + "),
    ("return ", "retrun "),
    (" / ", " * "),
    ("max(", "min("),
    ("min(", "max("),
    (".append(", ".add("),
    ("not ", ""),
    ("len(", "sum("),
)


def _sample(task: str, group: str, ask: str, given: str, answer: str) -> Sample:
    return Sample("edit", task, group, f"{ask}\n{given}", answer)


def _identifiers(program: Program) -> list[str]:
    words = set(re.findall(r"\b[a-z_][a-z_0-9]*\b", program.code))
    keywords = set(
        "def return for in if not else class self raise sum max min len sorted round key default "
        "None items values get append split join char isdigit isupper islower isspace isalpha "
        "startswith endswith function filter map reduce length abs f x not enough and or "
        "aeiou must be negative __init__ __str__".split()
    )
    stems = {word for word in words if word not in keywords and len(word) > 1}
    strings = " ".join(re.findall(r'"[^"]*"', program.code))
    return sorted(word for word in stems if not re.search(rf"\b{word}\b", strings))


def rename(rng: random.Random) -> Sample:
    while True:
        program = any_program(rng, ("Python", "JavaScript"))
        names = _identifiers(program)
        if names:
            break
    old = rng.choice(names)
    new = rng.choice([name for name in _NEW_NAMES if name not in program.code])
    answer = re.sub(rf"\b{re.escape(old)}\b", new, program.code)
    ask = rng.choice(
        [
            f"Rename `{old}` to `{new}` in this code. {rng.choice(_ONLY)}",
            f"Change the name `{old}` to `{new}` everywhere in this code. {rng.choice(_ONLY)}",
        ]
    ).strip()
    return _sample("rename", program.group, ask, program.code, answer)


def fix_bug(rng: random.Random) -> Sample:
    while True:
        program = any_program(rng, ("Python", "JavaScript"))
        possible = [(good, bad) for good, bad in _BUGS if good in program.code]
        if possible:
            break
    good, bad = rng.choice(possible)
    broken = program.code.replace(good, bad, 1)
    goal = program.description
    said = rng.choice([f"It should be a {goal}." if goal.startswith("class") else
                       f"The function {goal}."])  # fmt: skip
    ask = f"Fix the bug in this {program.language} code. {said} {rng.choice(_ONLY)}".strip()
    return _sample("fix_bug", program.group, ask, broken, program.code)


def _python_function(rng: random.Random) -> Program:
    while True:
        program = any_program(rng, ("Python",))
        if program.code.startswith("def "):
            return program


def add_docstring(rng: random.Random) -> Sample:
    program = _python_function(rng)
    head, body = program.code.split("\n", 1)
    words = program.description[:1].upper() + program.description[1:]
    answer = f'{head}\n    """{words}."""\n{body}'
    ask = rng.choice(["Add a docstring to this function.", "Document this function."])
    return _sample("add_docstring", program.group, ask, program.code, answer)


def add_parameter(rng: random.Random) -> Sample:
    program = _python_function(rng)
    name = rng.choice(["verbose", "limit", "default", "strict", "scale", "debug", "start"])
    value = rng.choice(["False", "None", "0", "1", "True", "10"])
    if re.search(rf"\b{name}\b", program.code):
        name = "option"
    head, body = program.code.split("\n", 1)
    answer = f"{head[:-2]}, {name}={value}):\n{body}"
    ask = rng.choice(
        [
            f"Add a parameter `{name}` with the default {value} to this function.",
            f"Give this function another parameter, {name}={value}. {rng.choice(_ONLY)}",
        ]
    ).strip()
    return _sample("add_parameter", program.group, ask, program.code, answer)


def add_types(rng: random.Random) -> Sample:
    while True:
        program = _python_function(rng)
        match = re.match(r"def (\w+)\((text|s|string|sentence|line)\):", program.code)
        if match:
            break
    kind = "int" if program.name.startswith("count") else "str"
    if program.name.startswith("list"):
        kind = "list[str]"
    elif program.name.startswith("first"):
        kind = "str | None"
    answer = program.code.replace(match[0], f"def {match[1]}({match[2]}: str) -> {kind}:", 1)
    ask = f"Add type hints to this function. {rng.choice(_ONLY)}".strip()
    return _sample("add_types", program.group, ask, program.code, answer)


def change_number(rng: random.Random) -> Sample:
    while True:
        program = any_program(rng, ("Python", "JavaScript", "SQL"))
        numbers = re.findall(r"\b\d+\b", program.code)
        if numbers:
            break
    old = rng.choice(numbers)
    new = str(rng.randint(2, 500))
    answer = re.sub(rf"\b{old}\b", new, program.code)
    ask = f"Change {old} to {new} in this code. {rng.choice(_ONLY)}".strip()
    return _sample("change_number", program.group, ask, program.code, answer)


def _typo(rng: random.Random, word: str) -> str:
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randrange(1, len(word) - 1)
    form = rng.randrange(3)
    if form == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if form == 1:
        return word[:at] + word[at + 1 :]
    return word[:at] + word[at] + word[at:]


def fix_typos(rng: random.Random) -> Sample:
    text = paragraph(rng, rng.randint(2, 6))
    words = text.split(" ")
    wrong = [_typo(rng, word) if rng.random() < 0.2 else word for word in words]
    ask = rng.choice(
        [
            "Correct the spelling mistakes in this text. Keep everything else as it is.",
            "Fix the typos in this text.",
            "Proofread this text and correct the spelling.",
        ]
    )
    return _sample("fix_typos", text[:60], ask, " ".join(wrong), text)


def replace_word(rng: random.Random) -> Sample:
    text = paragraph(rng, rng.randint(2, 5))
    words = set(re.findall(r"\b[a-z]{4,}\b", text))
    old = rng.choice(sorted(words))
    new = rng.choice("lantern violin basket green silent pocket window tiger simple copper".split())
    answer = re.sub(rf"\b{old}\b", new, text)
    ask = rng.choice(
        [
            f"Replace the word '{old}' with '{new}' in this text.",
            f"Rewrite the text with '{new}' instead of '{old}'.",
        ]
    )
    return _sample("replace_word", text[:60], ask, text, answer)


def change_name(rng: random.Random) -> Sample:
    text = paragraph(rng, rng.randint(2, 5))
    match = re.match(r"[A-Z][a-z]+", text)
    old = match[0] if match else "Anna"
    new = rng.choice([name for name in GIRLS if name not in text])
    answer = re.sub(rf"\b{old}\b", new, text)
    return _sample(
        "change_name", text[:60], f"Change the name {old} to {new} in this text.", text, answer
    )


def change_case(rng: random.Random) -> Sample:
    text = paragraph(rng, rng.randint(1, 3))
    form = rng.choice(["uppercase", "lowercase", "title case"])
    answer = {"uppercase": text.upper(), "lowercase": text.lower()}.get(form, text.title())
    ask = rng.choice([f"Rewrite this text in {form}.", f"Convert the text to {form}."])
    return _sample("change_case", text[:60], ask, text, answer)


def rewrite_clauses(rng: random.Random) -> Sample:
    """Another tense or person, negation, question, passive."""
    clauses = [clause(rng) for _ in range(rng.randint(1, 3))]
    given = " ".join(item.text() for item in clauses)
    form = rng.choice(["present", "future", "first", "negative", "question", "passive"])
    if form in ("present", "future"):
        ask = f"Rewrite this text in the {form} tense."
        told = [item.told(tense=form).text() for item in clauses]
    elif form == "first":
        clauses = [item.told(subject="I") for item in clauses]
        ask = rng.choice(["Rewrite this text in the first person.", "Tell this as 'I'."])
        told = [item.text() for item in clauses]
    elif form == "negative":
        ask = "Make every sentence negative."
        told = [item.told(negative=True).text() for item in clauses]
    elif form == "question":
        ask = "Turn each sentence into a yes-or-no question."
        told = [item.question() for item in clauses]
    else:
        ask = "Rewrite this text in the passive voice."
        told = [item.passive() for item in clauses]
    return _sample("rewrite_clauses", given[:60], ask, given, " ".join(told))


def move_lines(rng: random.Random) -> Sample:
    """Lines numbered, sorted, reversed or turned into bullets."""
    lines = [clause(rng).text() for _ in range(rng.randint(3, 6))]
    form = rng.choice(["number", "bullet", "reverse", "join", "last"])
    asks = {
        "number": ("Number these lines.", "\n".join(f"{i}. {x}" for i, x in enumerate(lines, 1))),
        "bullet": ("Turn these lines into a bullet list.", "\n".join(f"- {x}" for x in lines)),
        "reverse": ("Reverse the order of these lines.", "\n".join(reversed(lines))),
        "join": ("Join these lines into one paragraph.", " ".join(lines)),
        "last": ("Delete the last line of this text.", "\n".join(lines[:-1])),
    }
    ask, answer = asks[form]
    return _sample("move_lines", lines[0][:60], ask, "\n".join(lines), answer)


GENERATORS = (
    (rename, 3.0),
    (fix_bug, 3.0),
    (add_docstring, 1.5),
    (add_parameter, 1.5),
    (add_types, 1.0),
    (change_number, 1.0),
    (fix_typos, 2.5),
    (replace_word, 1.5),
    (change_name, 1.0),
    (change_case, 1.0),
    (rewrite_clauses, 3.0),
    (move_lines, 1.5),
)
