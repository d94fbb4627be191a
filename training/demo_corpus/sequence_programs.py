"""Programs over lists of numbers and over strings."""

from __future__ import annotations

import random

from training.demo_corpus.lexicon import capital
from training.demo_corpus.program import Program

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


def numbers_program(rng: random.Random) -> Program:
    """Over a list of numbers, in Python or JavaScript."""
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


def string_program(rng: random.Random) -> Program:
    """Over the characters or the words of a text."""
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
