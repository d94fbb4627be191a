"""Families of small programs with free slots, each with a description of what it does."""

from __future__ import annotations

import random

from training.demo_corpus.program import Program
from training.demo_corpus.sequence_programs import numbers_program, string_program

_FORMULAS = (
    ("the area of a rectangle", "rectangle_area", "width, height", "width * height"),
    (
        "the perimeter of a rectangle",
        "rectangle_perimeter",
        "width, height",
        "2 * (width + height)",
    ),
    ("the area of a triangle", "triangle_area", "base, height", "base * height / 2"),
    ("the area of a square", "square_area", "side", "side * side"),
    ("the perimeter of a square", "square_perimeter", "side", "4 * side"),
    ("the volume of a box", "box_volume", "length, width, height", "length * width * height"),
    ("the volume of a cube", "cube_volume", "side", "side ** 3"),
    ("the surface of a cube", "cube_surface", "side", "6 * side ** 2"),
    ("the speed from distance and time", "speed", "distance, time", "distance / time"),
    ("the distance from speed and time", "distance", "speed, time", "speed * time"),
    (
        "the simple interest",
        "simple_interest",
        "amount, rate, years",
        "amount * rate * years / 100",
    ),
    ("the average of two numbers", "average", "a, b", "(a + b) / 2"),
    ("the difference of two squares", "square_difference", "a, b", "a ** 2 - b ** 2"),
    ("the price after a discount", "discounted", "price, percent", "price * (1 - percent / 100)"),
    ("the price with tax", "with_tax", "price, rate", "price * (1 + rate / 100)"),
    ("the body mass index", "body_mass_index", "weight, height", "weight / height ** 2"),
    ("the kinetic energy", "kinetic_energy", "mass, speed", "mass * speed ** 2 / 2"),
    ("the remainder of a division", "remainder", "a, b", "a % b"),
    ("the last digit of a number", "last_digit", "number", "abs(number) % 10"),
    ("the sum of the first n integers", "sum_to", "n", "n * (n + 1) // 2"),
)
_UNITS = (
    ("kilometers", "miles", "* 0.621371"),
    ("miles", "kilometers", "* 1.609344"),
    ("hours", "minutes", "* 60"),
    ("minutes", "seconds", "* 60"),
    ("hours", "seconds", "* 3600"),
    ("days", "hours", "* 24"),
    ("weeks", "days", "* 7"),
    ("meters", "feet", "* 3.28084"),
    ("feet", "inches", "* 12"),
    ("inches", "centimeters", "* 2.54"),
    ("kilograms", "grams", "* 1000"),
    ("kilograms", "pounds", "* 2.20462"),
    ("liters", "milliliters", "* 1000"),
    ("grams", "kilograms", "/ 1000"),
    ("minutes", "hours", "/ 60"),
    ("bytes", "kilobytes", "/ 1024"),
    ("cents", "dollars", "/ 100"),
)


def _formula_program(rng: random.Random) -> Program:
    if rng.random() < 0.6:
        what, name, args, value = rng.choice(_FORMULAS)
        verb = rng.choice(["calculates", "computes", "returns"])
        style = rng.randrange(3)
        stem = rng.choice(["calculate_", "get_", "compute_", "", "find_"])
        name = stem + name
        body = [f"return {value}"] if style < 2 else [f"result = {value}", "return result"]
        if style == 1:
            first = args.split(",")[0]
            body = [
                f"if {first} < 0:",
                f'    raise ValueError("{first} must not be negative")',
                *body,
            ]
            what += f" and raises ValueError if {first} is negative"
        goal = f"{verb} {what}"
        code = "\n    ".join([f"def {name}({args}):", *body])
        return Program("Python", f"formula/{name}/{style}", name, goal, code)
    source, target, change = rng.choice(_UNITS)
    name = rng.choice([f"{source}_to_{target}", f"convert_{source}_to_{target}", f"to_{target}"])
    digits = rng.choice([None, 1, 2, 3])
    value = f"{source} {change}" if digits is None else f"round({source} {change}, {digits})"
    goal = f"converts {source} to {target}"
    goal += "" if digits is None else f" and rounds to {digits} decimal places"
    group = f"unit/{source}/{target}/{digits}"
    return Program("Python", group, name, goal, f"def {name}({source}):\n    return {value}")


def _dict_program(rng: random.Random) -> Program:
    key, value = rng.choice(
        [
            ("name", "score"),
            ("product", "price"),
            ("city", "population"),
            ("user", "age"),
            ("item", "quantity"),
            ("student", "grade"),
            ("country", "area"),
            ("word", "length"),
        ]
    )
    table, k = rng.choice([f"{key}_{value}s", f"{value}s", "table", "mapping"]), rng.randint(2, 100)
    pairs = f"for {key}, {value} in {table}.items()"
    forms = (
        ("invert", f"swaps {key}s and {value}s in a dictionary", f"{{{value}: {key} {pairs}}}"),
        ("above", f"keeps the {key}s with a {value} above {k}",
         f"{{{key}: {value} {pairs} if {value} > {k}}}"),
        ("below", f"keeps the {key}s with a {value} below {k}",
         f"{{{key}: {value} {pairs} if {value} < {k}}}"),
        ("total", f"returns the total {value} of all {key}s", f"sum({table}.values())"),
        ("best", f"returns the {key} with the highest {value}", f"max({table}, key={table}.get)"),
        ("lowest", f"returns the {key} with the lowest {value}", f"min({table}, key={table}.get)"),
        ("scaled", f"multiplies every {value} by {k}", f"{{{key}: {value} * {k} {pairs}}}"),
        ("sorted", f"returns the {key}s sorted by {value}", f"sorted({table}, key={table}.get)"),
        ("listed", f"returns a list of '{key}: {value}' strings",
         f'[f"{{{key}}}: {{{value}}}" {pairs}]'),
    )  # fmt: skip
    tag, goal, line = rng.choice(forms)
    name = f"{tag}_{key}s"
    return Program("Python", f"dict/{tag}/{key}/{k % 9}", name, goal,
                   f"def {name}({table}):\n    return {line}")  # fmt: skip


def _class_program(rng: random.Random) -> Program:
    kinds = (
        ("Account", "owner", "balance", "deposit", "withdraw", "amount"),
        ("Counter", "label", "count", "increase", "decrease", "step"),
        ("Tank", "name", "level", "fill", "drain", "litres"),
        ("Player", "name", "score", "add_points", "remove_points", "points"),
        ("Stock", "product", "quantity", "add", "remove", "number"),
        ("Battery", "brand", "charge", "load", "use", "percent"),
        ("Wallet", "owner", "money", "put_in", "take_out", "amount"),
        ("Robot", "name", "energy", "recharge", "work", "units"),
        ("Train", "line", "passengers", "board", "leave", "people"),
    )
    kind, label, state, more, less, unit = rng.choice(kinds)
    start, checked, shown = rng.choice([0, 0, 10, 100]), rng.random() < 0.4, rng.random() < 0.5
    lines = [
        f"class {kind}:",
        f"    def __init__(self, {label}, {state}={start}):",
        f"        self.{label} = {label}",
        f"        self.{state} = {state}",
        "",
        f"    def {more}(self, {unit}):",
        f"        self.{state} += {unit}",
        "",
        f"    def {less}(self, {unit}):",
    ]
    goal = f"a {label}, a {state} starting at {start}, and methods {more} and {less}"
    if checked:
        lines.append(f"        if {unit} > self.{state}:")
        lines.append(f'            raise ValueError("not enough {state}")')
        goal += f" that refuse to let the {state} go below zero"
    lines.append(f"        self.{state} -= {unit}")
    if shown:
        lines += ["", "    def __str__(self):"]
        lines.append(f'        return f"{{self.{label}}}: {{self.{state}}}"')
        goal += ", and a __str__ method"
    group = f"class/{kind}/{start}/{checked}/{shown}"
    return Program("Python", group, kind, f"class {kind} with {goal}", "\n".join(lines))


def _sql_program(rng: random.Random) -> Program:
    tables = {
        "employees": ["name", "salary", "department", "age"],
        "products": ["title", "price", "stock", "category"],
        "orders": ["customer", "total", "status", "quantity"],
        "students": ["name", "grade", "age", "class"],
        "books": ["title", "author", "year", "pages"],
        "cities": ["name", "country", "population", "area"],
    }
    table = rng.choice(list(tables))
    first, second, third = rng.sample(tables[table], 3)
    k = rng.randint(1, 200)
    sign, words = rng.choice([(">", "greater than"), ("<", "less than"), ("=", "equal to")])
    forms = (
        (f"selects the {first} and {second} of all rows in {table} where {third} is {words} {k}",
         f"SELECT {first}, {second}\nFROM {table}\nWHERE {third} {sign} {k};", "where"),
        (f"selects all rows of {table} ordered by {first} in descending order",
         f"SELECT *\nFROM {table}\nORDER BY {first} DESC;", "order"),
        (f"counts the rows of {table} for each {first}",
         f"SELECT {first}, COUNT(*)\nFROM {table}\nGROUP BY {first};", "group"),
        (f"returns the {k % 20 + 1} rows of {table} with the highest {first}",
         f"SELECT *\nFROM {table}\nORDER BY {first} DESC\nLIMIT {k % 20 + 1};", "limit"),
        (f"deletes the rows of {table} where {first} is {words} {k}",
         f"DELETE FROM {table}\nWHERE {first} {sign} {k};", "delete"),
        (f"sets {first} to {k} in {table} where {second} is {words} {k + 1}",
         f"UPDATE {table}\nSET {first} = {k}\nWHERE {second} {sign} {k + 1};", "update"),
    )  # fmt: skip
    goal, code, tag = rng.choice(forms)
    return Program("SQL", f"sql/{table}/{first}/{second}/{tag}", table, goal, code)


_FAMILIES = (
    (numbers_program, 5),
    (string_program, 4),
    (_formula_program, 3),
    (_dict_program, 3),
    (_class_program, 2),
    (_sql_program, 2),
)


def any_program(rng: random.Random, languages: tuple[str, ...] = ()) -> Program:
    """A program of any family, or of those in `languages`."""
    families = [family for family, _ in _FAMILIES]
    weights = [weight for _, weight in _FAMILIES]
    while True:
        program = rng.choices(families, weights)[0](rng)
        if not languages or program.language in languages:
            return program
