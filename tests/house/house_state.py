"""No ambient state: one reader of the environment, no module-level value that changes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from house_tree import Module, functions

ENVIRONMENT_READER = "core/options.py"
ENVIRONMENT_NAMES = ("environ", "environb", "getenv", "getenvb")

# (file, name) -> why this one is not ambient state. Stale entries fail a test.
ALLOWED_STATE = {
    ("index/expr.py", "_TABLE"): "intern table of weak references: a cache nobody can observe",
}

CONSTANT_NAME = re.compile(r"_*[A-Z][A-Z0-9_]*")
DISPLAYS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
PLAIN_CONTAINERS = {"dict", "list", "set", "bytearray"}
# Containers and cells that exist to be changed: no name makes a constant of them.
BORN_TO_CHANGE = {
    "ChainMap", "ContextVar", "Counter", "OrderedDict", "WeakKeyDictionary", "WeakSet",
    "WeakValueDictionary", "count", "defaultdict", "deque", "local",
}  # fmt: skip
MUTATORS = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem",
    "remove", "reverse", "setdefault", "sort", "update",
}  # fmt: skip


def environment_is_read_in_one_place(module: Module) -> Iterator[str]:
    if module.path == ENVIRONMENT_READER:
        return
    names_of_os = {"os"}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names_of_os |= {alias.asname or "os" for alias in node.names if alias.name == "os"}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            used = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in names_of_os:
            used = [node.attr]
        else:
            continue
        for name in set(used) & set(ENVIRONMENT_NAMES):
            yield module.at(node.lineno, f"uses os.{name}; only {ENVIRONMENT_READER} may")


def no_mutable_state(module: Module) -> Iterator[str]:
    for name, line, why in state_of(module):
        if (module.path, name) not in ALLOWED_STATE:
            yield module.at(line, f"'{name}' {why}")


def state_of(module: Module) -> Iterator[tuple[str, int, str]]:
    """Yield (name, line, why) of everything in the module that can change between two calls."""
    changed = _changed_in_functions(module.tree)
    for name, value, line in _bindings(module.tree):
        if name.startswith("_") and name.endswith("_"):
            continue  # __all__, __slots__, ctypes' _fields_
        kind = _kind(value)
        if kind == "none":
            continue
        if kind == "born to change":
            yield name, line, "is a container that exists to be changed"
        elif not CONSTANT_NAME.fullmatch(name):
            yield name, line, "is a mutable container; a constant has an UPPER_CASE name"
        elif kind == "empty":
            yield name, line, "is empty, so something must fill it later"
        elif name in changed:
            yield name, line, f"is changed by a function in line {changed[name]}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            for name in node.names:
                yield name, node.lineno, "is assigned by a function through 'global'"
    for function in functions(module.tree):
        if _keeps_every_argument(function):
            yield function.name, function.lineno, "is cached without bound: it keeps all arguments"


def _bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    """Names bound at module or class level, also under `if` and `try`, with their values."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        elif isinstance(node, ast.ClassDef | ast.If | ast.Try | ast.ExceptHandler | ast.With):
            pending.extend(ast.iter_child_nodes(node))
            continue
        else:
            continue
        yield from ((one.id, value, node.lineno) for one in targets if isinstance(one, ast.Name))


def _kind(value: ast.expr) -> str:
    if isinstance(value, DISPLAYS):
        items = getattr(value, "keys", None) or getattr(value, "elts", None)
        is_comprehension = hasattr(value, "generators")
        return "filled" if items or is_comprehension else "empty"
    if not isinstance(value, ast.Call):
        return "none"
    called = value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name in BORN_TO_CHANGE:
        return "born to change"
    if name in PLAIN_CONTAINERS:
        return "filled" if value.args or value.keywords else "empty"
    return "none"


def _changed_in_functions(tree: ast.Module) -> dict[str, int]:
    """Names, or attributes of classes, whose content some function changes: name -> line."""
    changed: dict[str, int] = {}
    for function in functions(tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                owner: ast.expr = node.value
            elif isinstance(node, ast.Attribute) and node.attr in MUTATORS:
                owner = node.value
            elif isinstance(node, ast.AugAssign):
                owner = node.target
            else:
                continue
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", None)
            if name:
                changed.setdefault(name, node.lineno)
    return changed


def _keeps_every_argument(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    arguments = function.args
    if not (arguments.args or arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg):
        return False
    return any(
        re.fullmatch(r"(functools\.)?(cache|lru_cache\((maxsize=)?None\))", ast.unparse(decorator))
        for decorator in function.decorator_list
    )
