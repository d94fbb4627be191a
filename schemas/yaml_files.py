"""Read YAML files strictly: a key that is given twice is refused."""

from pathlib import Path
from typing import Any

import yaml

from schemas.text_files import FileError, check_values, read_text

MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            # Keys are equal where their values are: `yes` and `true`, `1` and `0x1`.
            name = key.value if key.tag == MERGE else self.construct_object(key)
            if name in first:
                before = f"key {key.value!r} is given twice, first in line {first[name]}"
                raise yaml.MarkedYAMLError(problem=before, problem_mark=key.start_mark)
            first[name] = key.start_mark.line + 1
        return node


def read_yaml(file: Path) -> list[Any]:
    """Return the documents of a YAML file that are not empty. Raises FileError naming the line."""
    return parse_yaml(read_text(file), str(file))


def read_document(file: Path) -> Any:
    """Return the only document of a YAML file. Raises FileError."""
    found = read_yaml(file)
    if len(found) != 1:
        raise FileError(f"{file}: has {len(found)} YAML documents; give a file with one")
    return found[0]


def parse_yaml(text: str, place: str) -> list[Any]:
    """Return the documents of a YAML text that are not empty.

    Raises FileError naming `place`, the line and the key.
    """
    try:
        documents = [one for one in yaml.load_all(text, _Loader) if one is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        raise FileError(f"{place}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        place = f"{place}, line {text.count(chr(10), 0, error.position) + 1}"
        wrong = f"character #x{error.character:04x} is not allowed"
        raise FileError(f"{place}: not YAML: {wrong}") from error
    except RecursionError as error:
        raise FileError(f"{place}: nested too deeply") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML's constructors raise these for a value that does not fit its tag: `!!int x`.
        raise FileError(f"{place}: not YAML: {error}") from error
    check_values(documents, place)
    return documents
