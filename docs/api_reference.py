"""The page of the public API, from the sources alone: nothing is imported, torch need not be there.

What is public: the names in `__all__` of `treadle` and `treadle.torch`, the builders of programs in
`treadle.ir.build`, the options. With a function comes what it returns, where that is ours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
HEAD = """# API reference

Written from the docstrings by `docs/api_reference.py`. Names that begin with `_`, and what is not
listed, may change at any time.
"""
WIDEST = 100
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Found:
    """A definition and the module it stands in."""

    module: str
    node: Definition


def api_page() -> str:
    """The whole reference as Markdown."""
    parts = [HEAD]
    for module in ("treadle", "treadle.torch"):
        found = {name: definition(module, name) for name in public_names(module)}
        parts += [f"## {module}\n", _text(_tree(module))]
        parts += [_shown(f"{module}.{name}", one) for name, one in found.items() if one is not None]
        parts += [_shown(one.node.name, one) for one in returned(found.values())]
    parts += ["## treadle.ir.build\n", _text(_tree("treadle.ir.build"))]
    parts += [_shown(one.node.name, one) for one in builders()]
    parts += ["## Options\n", options_table()]
    return "\n".join(parts)


def public_names(module: str) -> list[str]:
    """The names a module offers: its `__all__`."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(name for name in ast.literal_eval(node.value) if name[0] != "_")
    return []


def builders() -> Iterator[Found]:
    """The classes that programs and bodies are built with."""
    wanted = (("build", "ProgramBuilder"), ("build_body", "BodyBuilder"), ("build_body", "Value"))
    for stem, name in wanted:
        found = definition(f"treadle.ir.{stem}", name)
        assert found is not None, f"treadle.ir.{stem} has no {name}"
        yield found


def options_table() -> str:
    """Every option: its name in `options={...}`, its variable, its default, what it may be."""
    from treadle.core.options import Options

    rows = [
        'What `torch.compile(model, backend="treadle", options={...})` takes; see `treadle env`.\n',
        "| option | variable | default | may be | what it does |",
        "|---|---|---|---|---|",
    ]
    for row in Options().describe():
        variable = f"`{row.variable}`" if row.variable else ""
        cells = (f"`{row.name}`", variable, f"`{row.default}`", row.allowed, row.doc)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*rows, ""])


# ------------------------------------------------------------------------------- finding


def definition(module: str, name: str) -> Found | None:
    """Where a name that a module offers is defined: there, or where it is imported from."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, Definition) and node.name == name:
            return Found(module, node)
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition(str(node.module), alias.name)
    return None


def returned(found: Iterable[Found | None]) -> Iterator[Found]:
    """Our own classes that functions return, and those that their attributes are of, each once."""
    seen: set[str] = set()
    pending = [(one, one.node.returns) for one in found if one and not _is_class(one)]
    while pending:
        where, annotation = pending.pop(0)
        for part in ast.walk(annotation) if annotation is not None else ():
            if not isinstance(part, ast.Name) or part.id in seen:
                continue
            seen.add(part.id)
            what = definition(where.module, part.id)
            if what is not None and isinstance(what.node, ast.ClassDef):
                yield what
                pending += [(home, one.annotation) for home, one in _attributes(what)]


def _is_class(found: Found) -> bool:
    return isinstance(found.node, ast.ClassDef)


def _attributes(found: Found) -> Iterator[tuple[Found, ast.AnnAssign]]:
    for one in found.node.body:
        if isinstance(one, ast.AnnAssign):
            yield found, one


def lineage(found: Found) -> Iterator[Found]:
    """A class, and those of ours that it inherits from."""
    yield found
    assert isinstance(found.node, ast.ClassDef), "only a class inherits"
    for base in found.node.bases:
        name = base.value if isinstance(base, ast.Subscript) else base
        what = definition(found.module, name.id) if isinstance(name, ast.Name) else None
        if what is not None and isinstance(what.node, ast.ClassDef):
            yield from lineage(what)


def _tree(module: str) -> ast.Module:
    stem = SOURCE.joinpath(*module.split("."))
    path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


# ------------------------------------------------------------------------------- showing


def _shown(title: str, found: Found) -> str:
    node = found.node
    if not isinstance(node, ast.ClassDef):
        return f"### {title}\n\n{_signature(_spelled_out(found.module, node))}\n\n{_text(node)}"
    members: dict[str, str] = {}
    for one in lineage(found):
        assert isinstance(one.node, ast.ClassDef), "a lineage is of classes"
        for name, kind, about in _fields(one.node):
            members.setdefault(name, f"- `{name}: {kind}`{about}")
        for method in one.node.body:
            if isinstance(method, ast.FunctionDef) and (shown := _method(method)):
                members.setdefault(method.name, shown)
    return "\n".join([f"### {title}\n", _text(node), *members.values(), ""])


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Annotated attributes; a text right behind one says what it is."""
    for one, behind in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(one, ast.AnnAssign) or ast.unparse(one.target).startswith("_"):
            continue
        is_text = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
        about = f": {' '.join(str(behind.value.value).split())}" if is_text else ""  # type: ignore[union-attr]
        yield ast.unparse(one.target), ast.unparse(one.annotation), about


def _method(node: ast.FunctionDef) -> str:
    if node.name.startswith("_"):
        return ""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    about = " ".join(_doc(node).split())
    if any(one.endswith("property") for one in decorators):
        kind = f": {ast.unparse(node.returns)}" if node.returns else ""
        return f"- `{node.name}{kind}`: {about}"
    return f"- `{node.name}({_arguments(node)})`: {about}"


def _arguments(node: Function) -> str:
    said = ast.unparse(node.args)
    first = said.partition(",")
    return first[2].strip() if first[0] in ("self", "cls") else said


def _signature(node: Function) -> str:
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({_arguments(node)}){gives}"
    if len(line) > WIDEST:
        given = ",\n    ".join(_split(_arguments(node)))
        line = f"{node.name}(\n    {given},\n){gives}"
    return f"```python\n{line}\n```"


def _spelled_out(module: str, node: Function) -> Function:
    """The function with the values of constants instead of their names as defaults."""
    known = {
        ast.unparse(one.targets[0]): one.value
        for one in _tree(module).body
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant)
    }
    given = node.args
    given.defaults = [known.get(ast.unparse(d), d) for d in given.defaults]
    given.kw_defaults = [d and known.get(ast.unparse(d), d) for d in given.kw_defaults]
    return node


def _split(arguments: str) -> Iterator[str]:
    """Arguments one by one: cut at commas that are in no bracket."""
    depth, start = 0, 0
    for at, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield arguments[start:at].strip()
            start = at + 1
    yield arguments[start:].strip()


def _doc(node: ast.AST) -> str:
    return ast.get_docstring(node) or ""  # type: ignore[arg-type]


def _text(node: ast.AST) -> str:
    """A docstring as it stands: what is indented in it is an example in Markdown, too."""
    found = _doc(node)
    return f"{found}\n" if found else ""
