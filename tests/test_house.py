"""Rules of the house: no circles, one name one thing, files and signatures that can be read, axes in few places."""

import ast
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import phaze_opt

ROOT = Path(phaze_opt.__file__).parent
DOTTED = re.compile(r"(?<!`)`((?:[a-z_]+\.)+\w+)`(?!`)")
"""A name in a docstring that says where it stands, such as `objective.scenario.Scenario`."""
MAX_PARAMETERS = 15
MAX_LINES = 500
MAX_FILES = 620
MAX_FILES_OF_A_WORD = 35
"""Files that may name one parameter of the chip: it is declared once, and few have a meaning of their own for it."""


@cache
def sources() -> dict[str, str]:
    """The text of every module; read when a test asks for it, as both processes of `make test` import this file."""
    return {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
        for path in sorted(ROOT.rglob("*.py"))
    }


@cache
def modules() -> dict[str, ast.Module]:
    return {module: ast.parse(text) for module, text in sources().items()}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in a node, without the expressions, which are most of a tree."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, block, ()):
            yield each
            yield from statements(each)


def imported(tree: ast.Module) -> set[str]:
    """Modules that a module imports anywhere, in functions and for type checkers too."""
    names = set()
    for node in statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names & modules().keys()


def test_no_module_imports_itself_through_others():
    graph = nx.DiGraph((name, other) for name, tree in modules().items() for other in imported(tree) - {name})
    assert not [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def test_one_name_is_one_class():
    homes = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    assert not {name: where for name, where in homes.items() if len(where) > 1}
    assert [name for name in homes if name.endswith("Journal")] == ["Journal"]


def test_signatures_and_files_can_be_read():
    assert len(modules()) <= MAX_FILES
    long = [module for module, tree in modules().items() if tree.body and tree.body[-1].end_lineno > MAX_LINES]
    wide = [
        (module, node.name)
        for module, tree in modules().items()
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) > MAX_PARAMETERS
    ]
    assert (long, wide) == ([], [])


@pytest.mark.parametrize("word", ["num_tc", "hbm_bytes"])
def test_a_parameter_of_the_chip_stands_in_few_files(word):
    naming = [module for module, text in sources().items() if word in text]
    assert len(naming) <= MAX_FILES_OF_A_WORD, naming


def stands(name: str, module: str) -> bool:
    """Whether a dotted name is a module, or a name in one, seen from the package or from a room the module is in."""
    parts = module.split(".")
    for start in range(len(parts)):
        full = ".".join([*parts[: start + 1], name])
        *path, last = full.split(".")
        if full in modules() or ".".join(path) in modules() and re.search(rf"\b{last}\b", sources()[".".join(path)]):
            return True
    return False


def test_names_in_docstrings_stand_where_they_say():
    lost = {
        (module, name)
        for module, text in sources().items()
        for name in DOTTED.findall(text)
        if not stands(name, module)
    }
    others = {(module, name) for module, name in lost if importlib.util.find_spec(name.partition(".")[0]) is None}
    assert not others
