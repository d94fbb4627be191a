"""Families of small programs with free slots, each with a description of what it does."""

from __future__ import annotations

import random
from dataclasses import dataclass

from training.demo_corpus.lexicon import capital


@dataclass(frozen=True)
class Program:
    """A program, what it does in words, and the slots it was made from."""

    language: str
    group: str
    name: str
    description: str
    code: str


# words, condition on x in Python, the same in JavaScript, name part
_FILTERS = (
    ("even numbers", "x % 2 == 0", "x % 2 === 0", "even"),
    ("odd numbers", "x % 2 != 0", "x % 2 !== 0", "odd"),
    ("positive numbers", "x > 0", "x > 0", "positive"),
    ("negative numbers", "x < 0", "x < 0", "negative"),
    ("numbers greater than {k}", "x > {k}", "x > {k}", "large"),
    ("numbers less than {k}", "x < {k}", "x < {k}", "small"),
    ("numbers divisible by {k}", "x % {k} == 0", "x % {k} === 0", "divisible"),
    ("numbers not equal to {k}", "x != {k}", "x !== {k}", "other"),
    ("numbers at least {k}", "x >= {k}", "x >= {k}", "high"),
    ("numbers between 0 and {k}", "0 <= x <= {k}", "x >= 0 && x <= {k}", "bounded"),
)
_MAPS = (
    ("", "x", ""),
    ("the squares of", "x * x", "squared"),
    ("the cubes of", "x ** 3", "cubed"),
    ("the doubles of", "x * 2", "doubled"),
    ("the halves of", "x / 2", "halved"),
    ("the negatives of", "-x", "negated"),
    ("{m} times", "x * {m}", "scaled"),
    ("{m} more than", "x + {m}", "shifted"),
)
_NUMBERS = ("numbers", "values", "items", "nums", "data", "elements", "arr", "lst")


def _numbers_program(rng: random.Random) -> Program:
    which, test, js_test, tag = rng.choice(_FILTERS)
    of, mapped, map_tag = rng.choice(_MAPS)
    k, m = rng.randint(2, 100), rng.randint(2, 20)
    which, test, js_test = which.format(k=k), test.format(k=k), js_test.format(k=k)
    of, mapped = of.format(m=m), mapped.format(m=m)
    arg = rng.choice(_NUMBERS)
    what = f"{of} the {which}" if of else f"the {which}"
    reduce = rng.choice(["sum", "product", "count", "list", "maximum", "minimum", "average"])
    if reduce == "count":
        of, mapped, map_tag, what = "", "x", "", f"the {which}"
    name = "_".join(part for part in (reduce, map_tag, tag) if part)
    group = f"numbers/{tag}/{map_tag}/{reduce}/{k % 7}"
    javascript = rng.random() < 0.2 and reduce in ("sum", "count", "list")
    if javascript:
        return _numbers_js(group, name, what, reduce, arg, js_test, mapped)
    pick = f"for x in {arg} if {test}"
    loop = rng.random() < 0.5
    if reduce == "list":
        goal = f"returns a list of {what} in a list"
        short = [f"return [{mapped} {pick}]"]
        start, step, end = "result = []", f"result.append({mapped})", "return result"
    elif reduce == "sum":
        goal = f"returns the sum of {what} in a list"
        short = [f"return sum({mapped} {pick})"]
        start, step, end = "total = 0", f"total += {mapped}", "return total"
    elif reduce == "product":
        goal, loop, short = f"returns the product of {what} in a list", True, []
        factor = mapped if mapped.isidentifier() else f"({mapped})"
        start, step, end = "product = 1", f"product *= {factor}", "return product"
    elif reduce == "count":
        goal = f"counts {what} in a list"
        short = [f"return sum(1 {pick})"]
        start, step, end = "count = 0", "count += 1", "return count"
    elif reduce == "average":
        goal, loop = f"returns the average of {what} in a list, or 0 if there are none", False
        short = [f"chosen = [{mapped} {pick}]", "if not chosen:", "    return 0"]
        short.append("return sum(chosen) / len(chosen)")
        start = step = end = ""
    else:
        function = "max" if reduce == "maximum" else "min"
        goal, loop = f"returns the {reduce} of {what} in a list, or None if there are none", False
        short = [f"return {function}(({mapped} {pick}), default=None)"]
        start = step = end = ""
    body = short
    if loop:
        body = [start, f"for x in {arg}:", f"    if {test}:", f"        {step}", end]
    code = "\n    ".join([f"def {name}({arg}):", *body])
    return Program("Python", group, name, goal, code)


def _numbers_js(
    group: str, name: str, what: str, reduce: str, arg: str, test: str, mapped: str
) -> Program:
    head, *rest = name.split("_")
    name = head + "".join(capital(part) for part in rest)
    chain = f"{arg}.filter(x => {test})"
    if reduce == "list":
        goal, value = f"returns an array of {what} in an array", f"{chain}.map(x => {mapped})"
    elif reduce == "sum":
        goal = f"returns the sum of {what} in an array"
        value = f"{chain}.reduce((total, x) => total + {mapped}, 0)"
    else:
        goal, value = f"counts {what} in an array", f"{chain}.length"
    code = f"function {name}({arg}) {{\n  return {value};\n}}"
    return Program("JavaScript", group, name, goal, code)


_CHAR_CLASSES = (
    ("vowels", 'char in "aeiouAEIOU"', "vowels"),
    ("digits", "char.isdigit()", "digits"),
    ("uppercase letters", "char.isupper()", "upper"),
    ("lowercase letters", "char.islower()", "lower"),
    ("spaces", "char.isspace()", "spaces"),
    ("letters", "char.isalpha()", "letters"),
    ("occurrences of '{c}'", 'char == "{c}"', "char"),
)
_WORD_TESTS = (
    ("longer than {k} characters", "len(word) > {k}", "long"),
    ("shorter than {k} characters", "len(word) < {k}", "short"),
    ("starting with '{c}'", 'word.startswith("{c}")', "starting"),
    ("ending with '{c}'", 'word.endswith("{c}")', "ending"),
    ("containing '{c}'", '"{c}" in word', "containing"),
)


def _string_program(rng: random.Random) -> Program:
    letter, k = rng.choice("abcdefghilmnoprstuwy"), rng.randint(2, 12)
    text = rng.choice(["text", "s", "string", "sentence", "line"])
    if rng.random() < 0.5:
        what, test, tag = rng.choice(_CHAR_CLASSES)
        what, test = what.format(c=letter), test.format(c=letter)
        action = rng.choice(["count", "remove", "keep", "replace"])
        name, group = f"{action}_{tag}", f"chars/{tag}/{action}/{letter}"
        if action == "count":
            goal, line = f"counts the {what} in a string", f"sum(1 for char in {text} if {test})"
        elif action == "remove":
            goal = f"removes all {what} from a string"
            line = f'"".join(char for char in {text} if not {test})'
        elif action == "keep":
            goal = f"keeps only the {what} of a string"
            line = f'"".join(char for char in {text} if {test})'
        else:
            mark = rng.choice("*-_#.")
            goal = f"replaces all {what} in a string with '{mark}'"
            line = f'"".join("{mark}" if {test} else char for char in {text})'
        return Program("Python", group, name, goal, f"def {name}({text}):\n    return {line}")
    what, test, tag = rng.choice(_WORD_TESTS)
    what, test = what.format(c=letter, k=k), test.format(c=letter, k=k)
    action = rng.choice(["count", "list", "first", "join"])
    name, group = f"{action}_{tag}_words", f"words/{tag}/{action}/{letter}/{k}"
    pick = f"word for word in {text}.split() if {test}"
    goals = {
        "count": (f"counts the words {what} in a string", [f"return len([{pick}])"]),
        "list": (f"returns the words {what} in a string", [f"return [{pick}]"]),
        "join": (f"keeps only the words {what} of a string", [f'return " ".join({pick})']),
        "first": (
            f"returns the first word {what} in a string, or None",
            [
                f"for word in {text}.split():",
                f"    if {test}:",
                "        return word",
                "return None",
            ],
        ),
    }
    goal, body = goals[action]
    return Program("Python", group, name, goal, "\n    ".join([f"def {name}({text}):", *body]))


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
    (_numbers_program, 5),
    (_string_program, 4),
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
