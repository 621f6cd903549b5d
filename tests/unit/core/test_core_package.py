"""The package: public names load on first use and say the same thing to tools and to Python."""

import ast
import inspect

import pytest

import treadle.core as core


def test_every_public_name_loads_from_where_the_table_says() -> None:
    assert sorted(core.__all__) == sorted(core.HOME_OF)
    for name, home in core.HOME_OF.items():
        module = __import__(f"treadle.core.{home}", fromlist=[name])
        assert getattr(core, name) is getattr(module, name)


def test_type_checkers_are_told_the_same_table() -> None:
    imports = [
        node for node in ast.walk(ast.parse(inspect.getsource(core)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle.core.")
    ]  # fmt: skip
    told = {
        alias.name: str(node.module).rpartition(".")[2] for node in imports for alias in node.names
    }
    assert told == core.HOME_OF


def test_names_are_listed_before_they_are_loaded() -> None:
    assert set(core.__all__) <= set(dir(core))


def test_should_not_find_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match=r"module 'treadle\.core' has no attribute 'Verdikt'"):
        core.Verdikt  # type: ignore[attr-defined]  # noqa: B018
