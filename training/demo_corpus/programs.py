"""Small programs from a description, and descriptions of small programs."""

from __future__ import annotations

import random

from training.demo_corpus.program_families import any_program
from training.demo_corpus.rows import Sample

_ASK = (
    "Write a Python function that {}.",
    "Write a function in Python that {}.",
    "Create a Python function {name} that {}.",
    "Write a Python function named `{name}` that {}.",
    "Implement a function that {}.",
    "Python: write a function which {}.",
)


def write_program(rng: random.Random) -> Sample:
    program = any_program(rng)
    if program.language == "SQL":
        ask = rng.choice(["Write a SQL query that {}.", "Give me an SQL statement that {}."])
    elif program.language == "JavaScript":
        ask = rng.choice(
            ["Write a JavaScript function that {}.", "Create a JavaScript function {name} that {}."]
        )
    elif program.description.startswith("class "):
        ask = rng.choice(["Write a Python {}.", "Create a Python {}.", "Implement in Python a {}."])
    else:
        ask = rng.choice(_ASK)
    prompt = ask.format(program.description, name=program.name)
    return Sample("code", "write_program", program.group, prompt, program.code)


def explain_program(rng: random.Random) -> Sample:
    program = any_program(rng, ("Python", "JavaScript"))
    ask = rng.choice(["What does this code do?", "Explain this code in one sentence."])
    kind = "class" if program.description.startswith("class ") else "function"
    if kind == "class":
        answer = f"It defines a {program.description}."
    else:
        answer = f"The function `{program.name}` {program.description}."
    return Sample("code", "explain_program", program.group, f"{ask}\n{program.code}", answer)


GENERATORS = ((write_program, 6.0), (explain_program, 1.0))
