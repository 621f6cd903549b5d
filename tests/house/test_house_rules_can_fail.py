"""Each house rule finds what it is there to find, and nothing else."""

import pytest
from house_rules import RULES
from house_tree import Module


def lines(count: int) -> str:
    return "".join(f"    x = {n}\n" for n in range(count))


def table(entries: int) -> str:
    return "    return {\n" + "".join(f"        {n}: f,\n" for n in range(entries)) + "    }\n"


SHOULD_FIND = [
    ("functions are short", "core/a.py", "def f():\n" + lines(60), "'f' has 61 lines"),
    ("functions are short", "core/a.py", "async def f():\n" + lines(60), "'f' has 61"),
    ("functions are short", "core/a.py", "class A:\n def f(self):\n" + lines(60), "'f' has 61"),
    ("functions are short", "core/a.py", "def f():\n" + lines(60) + table(40), "'f' has 62"),
    ("files are small", "core/a.py", "x = 1\n" * 601, "has 601 lines"),
    ("public things have a docstring", "core/a.py", "x = 1", "the module"),
    ("public things have a docstring", "core/__init__.py", "x = 1", "the module"),
    ("public things have a docstring", "core/a.py", '"""\n"""', "the module"),
    ("public things have a docstring", "core/a.py", '"""M."""\nclass A: pass', "class 'A'"),
    ("public things have a docstring", "core/a.py", '"""M."""\ndef f(): pass', "function 'f'"),
    (
        "public things have a docstring",
        "core/a.py",
        '"""M."""\nclass A:\n    """A."""\n    def f(self): pass',
        "function 'f'",
    ),
    (
        "public things have a docstring",
        "core/a.py",
        '"""M."""\nclass B(C):\n    """B."""\n    def f(self): pass\nclass C:\n    """C."""',
        "function 'f'",
    ),
    ("class names have one meaning", "core/a.py", "class Program: pass", "in ir/program.py"),
    ("class names have one meaning", "core/a.py", "def f():\n    class Journal: pass", "'Journal'"),
    ("attributes have names", "ir/a.py", "at.stmt.attrs[0]", "by its place"),
    ("attributes have names", "ir/a.py", "x = (1, *stmt.attrs[1:])", "by its place"),
    ("asserts say something", "ir/a.py", "assert x is not None", "'assert x is not None' does"),
    ("asserts say something", "ir/a.py", "assert isinstance(x, int) and x > 0", "does not say"),
    ("words are the field's", "ir/a.py", "class ByHeirs: pass", "the word is in-place reuse"),
    ("words are the field's", "ir/a.py", "tenants = 1", "'tenants' says tenant"),
    ("words are the field's", "ir/a.py", "def f(a_spot): pass", "'a_spot' says spot"),
    ("layers point down", "core/a.py", "import treadle.ir.ops", "imports 'ir'"),
    ("layers point down", "core/a.py", "from treadle import ir", "imports 'ir'"),
    ("layers point down", "core/a.py", "from treadle.ir import ops", "imports 'ir'"),
    ("layers point down", "core/b/a.py", "from ...lab import cli", "imports 'lab'"),
    ("layers point down", "core/a.py", "from .. import lab", "imports 'lab'"),
    ("layers point down", "ir/a.py", "def f():\n    import treadle.analysis", "'analysis'"),
    (
        "layers point down",
        "ir/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from treadle.lab import cli",
        "src/treadle/ir/a.py:3: layer 'ir' imports 'lab'",
    ),
    ("layers point down", "ir/a.py", "import_module('treadle.lab.cli')", "imports 'lab'"),
    ("layers point down", "lab/a.py", "import treadle.testing", "imports 'testing'"),
    ("layers point down", "core/a.py", "import treadle.torch", "imports 'torch'"),
    ("layers point down", "extra/a.py", "", "folder 'extra' is not a layer"),
    ("torch stays home", "ir/a.py", "import torch.fx", "imports torch"),
    ("torch stays home", "testing/a.py", "def f():\n    from torch import nn", "imports torch"),
    ("torch stays home", "lab/a.py", "import importlib as i\ni.import_module('torch')", "torch"),
    ("numpy stays home", "ir/ops.py", "import numpy as np", "at module level"),
    ("numpy stays home", "runtime/a.py", "from numpy import array", "at module level"),
    ("numpy stays home", "ir/ops.py", "def f():\n    import numpy", "in a function"),
    ("the environment is read in one place", "core/a.py", "import os\nos.environ['A']", "environ"),
    ("the environment is read in one place", "lab/a.py", "import os\nos.getenv('A')", "getenv"),
    ("the environment is read in one place", "lab/a.py", "from os import environ", "environ"),
    ("the environment is read in one place", "lab/a.py", "import os as o\no.getenv('A')", "getenv"),
    ("there is no mutable module state", "core/a.py", "seen = {1}", "'seen' is a mutable"),
    ("there is no mutable module state", "core/a.py", "seen: list[int] = []", "'seen' is a"),
    ("there is no mutable module state", "core/a.py", "if 1:\n    seen = dict()", "'seen'"),
    ("there is no mutable module state", "core/a.py", "CACHE = {}", "'CACHE' is empty"),
    ("there is no mutable module state", "core/a.py", "CACHE = set()", "'CACHE' is empty"),
    ("there is no mutable module state", "core/a.py", "A = defaultdict(list)", "exists to be"),
    ("there is no mutable module state", "core/a.py", "A = itertools.count()", "exists to be"),
    ("there is no mutable module state", "core/a.py", "class A:\n    seen = []", "'seen'"),
    (
        "there is no mutable module state",
        "core/a.py",
        "A = {1: 2}\ndef f():\n    A[2] = 3",
        "core/a.py:1: 'A' is changed by a function in line 3",
    ),
    ("there is no mutable module state", "core/a.py", "A = [1]\ndef f():\n    A.append(2)", "'A'"),
    ("there is no mutable module state", "core/a.py", "A = [1]\ndef f():\n    del A[0]", "'A'"),
    (
        "there is no mutable module state",
        "core/a.py",
        "class B:\n    A = {1}\n    def f(self):\n        B.A.add(2)",
        "'A' is changed",
    ),
    ("there is no mutable module state", "core/a.py", "def f():\n    global n\n    n = 1", "'n'"),
    (
        "there is no mutable module state",
        "core/a.py",
        "@functools.lru_cache(maxsize=None)\ndef f(x): pass",
        "'f' is cached without bound",
    ),
    ("there is no mutable module state", "core/a.py", "@cache\ndef f(x): pass", "'f' is cached"),
]

SHOULD_NOT_FIND = [
    ("functions are short", "core/a.py", "def f():\n" + lines(59)),
    ("functions are short", "core/a.py", "def f():\n" + lines(40) + table(100)),
    ("functions are short", "core/a.py", "TABLE = {\n" + "    1: f,\n" * 100 + "}"),
    ("files are small", "core/a.py", "x = 1\n" * 600),
    ("public things have a docstring", "core/_a.py", "x = 1"),
    ("public things have a docstring", "core/a.py", '"""M."""\ndef _f(): pass'),
    ("public things have a docstring", "core/a.py", '"""M."""\nclass _A:\n    def f(self): pass'),
    ("public things have a docstring", "core/a.py", '"""M."""\n@overload\ndef f(): ...'),
    (
        "public things have a docstring",
        "core/a.py",
        '"""M."""\ndef f():\n    """F."""\n    def g(): pass',
    ),
    (
        "public things have a docstring",
        "core/a.py",
        '"""M."""\nclass A:\n    """A."""\n    def f(self):\n        """F."""\n'
        'class B(A):\n    """B."""\nclass C(m.B[int]):\n    """C."""\n    def f(self): pass',
    ),
    ("class names have one meaning", "ir/program.py", "class Program: pass"),
    ("class names have one meaning", "core/a.py", "class OfItsOwn: pass"),
    ("attributes have names", "ir/a.py", "stmt.attr('over')\nbuffer, size = stmt.attrs"),
    ("attributes have names", "ir/body.py", "self.attrs[0]"),
    ("asserts say something", "ir/a.py", "assert x, 'there is one'\nassert isinstance(x, A | B)"),
    ("asserts say something", "ir/a.py", "assert isinstance(x, A) or isinstance(x, B)"),
    ("words are the field's", "ir/a.py", "their = spotless = f(spotted=1)"),
    ("layers point down", "ir/a.py", "from treadle.core import no\nfrom . import ops"),
    ("layers point down", "ir/a.py", "from ..index.expr import Expr\nimport os.path"),
    ("layers point down", "core/a.py", "from treadle import __version__"),
    ("layers point down", "testing/a.py", "import treadle.lab.cli"),
    ("layers point down", "torch.py", "import treadle.frontends.torch"),
    ("torch stays home", "frontends/torch/a.py", "import torch"),
    ("torch stays home", "runtime/launch.py", "from torch import nn"),
    ("torch stays home", "torch.py", "import treadle.frontends.torch\nfrom .torch import x"),
    ("numpy stays home", "ir/interp.py", "import numpy"),
    ("numpy stays home", "ir/interp/ops.py", "import numpy"),
    ("numpy stays home", "testing/a.py", "import numpy"),
    ("numpy stays home", "runtime/a.py", "def f():\n    import numpy"),
    ("the environment is read in one place", "core/options.py", "import os\nos.environ"),
    ("the environment is read in one place", "lab/a.py", "import os\nos.path\nself.environ"),
    ("there is no mutable module state", "core/a.py", "__all__ = ['a']\nA = {1: 2}\nb = (1, 2)"),
    (
        "there is no mutable module state",
        "core/a.py",
        "def f():\n    seen = []\n    seen.append(1)",
    ),
    ("there is no mutable module state", "core/a.py", "A = {1: 2}\nA[3] = 4"),
    ("there is no mutable module state", "core/a.py", "@cache\ndef f(): pass"),
    ("there is no mutable module state", "core/a.py", "@lru_cache(maxsize=99)\ndef f(x): pass"),
    ("there is no mutable module state", "core/a.py", "class A:\n    __slots__ = ['a']"),
    ("there is no mutable module state", "index/expr.py", "_TABLE = {}"),
]


@pytest.mark.parametrize("rule, path, text, part", SHOULD_FIND)
def test_a_breach_is_found(rule: str, path: str, text: str, part: str) -> None:
    findings = list(RULES[rule](Module(path, text)))
    assert len(findings) == 1
    assert findings[0].startswith(f"src/treadle/{path}:")
    assert part in findings[0]


@pytest.mark.parametrize("rule, path, text", SHOULD_NOT_FIND)
def test_should_not_find_anything(rule: str, path: str, text: str) -> None:
    assert list(RULES[rule](Module(path, text))) == []


def test_every_rule_is_shown_to_fail_and_to_pass() -> None:
    assert {rule for rule, *_ in SHOULD_FIND} == set(RULES)
    assert {rule for rule, *_ in SHOULD_NOT_FIND} == set(RULES)
