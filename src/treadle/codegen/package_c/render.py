"""The C text of a package and the header for those who call it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from treadle.codegen.c.sites import Site
from treadle.codegen.c.unit import USE_THREADS, Unit
from treadle.codegen.host_c.instructions import CallLibrary
from treadle.codegen.host_c.render import NEEDED, render_host
from treadle.codegen.package_c.expressions import HELPERS, CExpressions
from treadle.codegen.package_c.numbers import NumberTable, bytes_of
from treadle.codegen.package_c.tables import ALIGNMENT, TYPE_CODES, PackedGraph, PackedTensor
from treadle.codegen.package_c.words import shown_constraint, shown_tensor
from treadle.index import Expr, evaluate
from treadle.ir.types import DType

FLAGS = ("-std=gnu11", "-O2", "-w", "-fvisibility=hidden")
LIBRARIES = ("-lm", "-ldl", "-lpthread")
HIDDEN = "-fvisibility=hidden"
FEATURES = (
    "sse4.2", "popcnt", "avx", "avx2", "fma", "bmi", "bmi2", "avx512f", "avx512bw", "avx512cd",
    "avx512dq", "avx512vl", "avx512vnni", "avx512vbmi", "avx512vbmi2", "avx512ifma",
)  # fmt: skip
"""What compilers say they use of a processor, and loading asks for."""
WEIGHT_HEAD = 64
"""Bytes before the first weight in their file."""


@dataclass(frozen=True)
class PackageSource:
    """The three C texts of a package, and what it needs to be loaded."""

    kernels: str
    host: str
    package: str
    header: str
    weight_offsets: tuple[int, ...]
    weight_file_bytes: int


def weight_places(weights: Sequence[PackedTensor]) -> tuple[tuple[int, ...], int]:
    """Where each weight lies in the file, and how long the file is."""
    at, found = WEIGHT_HEAD, []
    for one in weights:
        found.append(at)
        at += -(-weight_bytes(one) // ALIGNMENT) * ALIGNMENT
    return tuple(found), at


def weight_bytes(one: PackedTensor) -> int:
    """How many bytes of the file a weight takes; an empty one still has a place."""
    layout = one.layout
    found = bytes_of(layout.sizes, layout.strides, layout.offset, one.dtype.itemsize).value
    assert found is not None, "weights have fixed sizes"
    return found


def render_package(
    graph: PackedGraph, unit: Unit, package_id: str, made: str, has_file: bool
) -> PackageSource:
    """All texts of a package; `package_id` is what its file of weights must say, 32 characters."""
    offsets, total = weight_places(graph.weights)
    writer = _PackageWriter(graph, unit)
    lines = [
        *_includes(),
        header(graph, made),
        HELPERS,
        *writer.tables(package_id, offsets, total, has_file),
        *writer.functions(),
        _text("package.c"),
    ]
    kernels = unit.text + "\n".join(["", *_features(), ""])
    texts = kernels, render_host(graph.host), "\n".join(lines), header(graph, made)
    return PackageSource(*texts, offsets, total)


def header(graph: PackedGraph, made: str) -> str:
    """The header of a package."""
    types = [f"    TREADLE_{d.text.upper()} = {code}," for d, code in _types()]
    rows = []
    kinds = (("inputs", graph.inputs), ("results", graph.outputs), ("weights", graph.weights))
    for title, tensors in kinds:
        rows += [
            f" * {title}:",
            *[f" *   {k}: {shown_tensor(t, graph)}" for k, t in enumerate(tensors)],
        ]
    for c in graph.constraints:
        rows.append(f" * it must hold that {shown_constraint(c, graph)}")
    text = _text("package.h")
    for word, by in (
        ("$made", made),
        ("$summary", "\n".join([row.replace("*/", "* /") for row in rows])),
        ("$types", "\n".join(types)),
        ("$inputs", str(len(graph.inputs))),
        ("$outputs", str(len(graph.outputs))),
        ("$weights", str(len(graph.weights))),
        ("$NAME", graph.name.upper()),
        ("$name", graph.name),
    ):
        text = text.replace(word, by)
    return text


def _types() -> list[tuple[DType, int]]:
    return sorted(TYPE_CODES.items(), key=lambda one: one[1])


def _text(name: str) -> str:
    return files("treadle.codegen.package_c").joinpath(name).read_text("utf-8")


def _includes() -> Iterator[str]:
    yield "#define _GNU_SOURCE"
    for name in ("dlfcn", "errno", "fcntl", "pthread", "stdarg", "stdint", "stdio", "stdlib"):
        yield f"#include <{name}.h>"
    for name in ("string", "sys/mman", "sys/stat", "unistd"):
        yield f"#include <{name}.h>"


def _features() -> Iterator[str]:
    """What the kernels use of the processor, as text that nothing has to be run for."""
    yield 'const char treadle_features[] = ""'
    for name in FEATURES:
        macro = "__" + name.upper().replace(".", "_") + "__"
        yield f'#ifdef {macro}\n"{name} "\n#endif'
    yield ";"


def _quoted(text: str) -> str:
    """A string of C, whatever is in the text."""
    plain = text.encode("ascii", "backslashreplace").decode()
    escaped = "".join([f"\\{c}" if c in '\\"?' else c if c.isprintable() else " " for c in plain])
    return f'"{escaped}"'


class _PackageWriter:
    """Writes the tables of one package."""

    def __init__(self, graph: PackedGraph, unit: Unit) -> None:
        self.graph, self.unit = graph, unit
        self.table = NumberTable(graph.base)
        self.table.numbers = list(graph.numbers)
        sizes = {s.symbol: f"s[{k}]" for k, s in enumerate(graph.sizes)}
        self.exact, self.rough = CExpressions(sizes), CExpressions(sizes, is_rough=True)
        symbols = [s.symbol for s in graph.sizes]
        self.likely = dict(zip(symbols, graph.likely_sizes, strict=True))
        self.place = {name: k for k, name in enumerate(graph.given)}
        self.totals: list[Expr] = []

    # -- tables ----------------------------------------------------------------------------
    def tables(
        self, package_id: str, offsets: Sequence[int], file_bytes: int, has_file: bool
    ) -> Iterator[str]:
        """Everything `package.c` reads."""
        graph = self.graph
        rows = [*self._tensors(), *self._storages(), *self._blocks()]
        yield from self._counts(file_bytes, has_file)
        yield f"#define PACKAGE_ID {_quoted(package_id)}"
        yield f"#define PACKAGE treadle_{graph.name}"
        yield "#define PACKAGE_TYPE struct PACKAGE"
        yield f"#define FUNCTION(name) treadle_{graph.name}_##name"
        yield TYPES
        names = ", ".join([_quoted(d.text) for d, _ in _types()])
        yield f"static const char *const type_names[] = {{{names}}};"
        yield from rows
        bounds = [
            f"{{{_quoted(s.shown)}, {s.shown_by[0]}, {s.shown_by[1]}, {s.low},"
            f" {'INT64_MAX' if s.high is None else s.high}, {s.divisor}}}"
            for s in graph.sizes
        ]
        yield _array("size_record", "sizes", bounds)
        yield _array("int64_t", "likely_sizes", graph.likely_sizes)
        yield _array("int64_t", "weight_offsets", offsets)
        sizes = [weight_bytes(one) for one in graph.weights]
        yield _array("int64_t", "weight_bytes", sizes)
        yield from self._names()
        likely = [int(evaluate(e, self.likely)) for e in self.table.numbers]
        yield _array("int64_t", "likely_numbers", likely)

    def _counts(self, file_bytes: int, has_file: bool) -> Iterator[str]:
        graph = self.graph
        state = any(one.changes for one in graph.weights)
        major, _, minor = (graph.torch_version or "0.0").partition(".")
        version = int(major) * 256 + int(minor.partition(".")[0])
        for name, value in (
            ("SIZES", len(graph.sizes)),
            ("INPUTS", len(graph.inputs)),
            ("OUTPUTS", len(graph.outputs)),
            ("WEIGHTS", len(graph.weights)),
            ("BLOCKS", len(graph.blocks)),
            ("STORAGES", len(graph.given)),
            ("ADOPTED", len(graph.adopted)),
            ("BASE", graph.base),
            ("NUMBERS", len(self.table.numbers)),
            ("LIKELY_BYTES", graph.likely_bytes),
            ("ALIGNMENT", ALIGNMENT),
            ("HAS_STATE", int(state)),
            ("HAS_WEIGHT_FILE", int(has_file)),
            ("WEIGHT_FILE_BYTES", file_bytes),
            ("TORCH_VERSION", version),
            ("TYPES", len(TYPE_CODES)),
            ("SITES", len(self.unit.sites)),
        ):
            yield f"#define {name} {value}"
        if f"void {USE_THREADS}(" in self.unit.text:
            yield "#define USES_THREADS"

    def _tensors(self) -> Iterator[str]:
        graph = self.graph
        for title, tensors in (
            ("inputs", graph.inputs),
            ("outputs", graph.outputs),
            ("weights", graph.weights),
        ):
            yield _array("tensor_record", title, [self._record(one) for one in tensors])

    def _record(self, one: PackedTensor) -> str:
        layout, item = one.layout, one.dtype.itemsize
        at = self.table.layout(layout)
        total = bytes_of(layout.sizes, layout.strides, layout.offset, item)
        self.totals.append(total)
        adopted = one.storage in self.graph.adopted
        cells = (
            _quoted(one.name), _quoted(shown_tensor(one, self.graph)), TYPE_CODES[one.dtype], item,
            len(layout.sizes), at, self.table.at(total), self.table.at(layout.offset),
            int(one.changes), int(one.is_direct), self.place.get(one.storage, -1),
            self.graph.adopted.index(one.storage) if adopted else -1,
        )  # fmt: skip
        return "{" + ", ".join(map(str, cells)) + "}"

    def _storages(self) -> Iterator[str]:
        graph = self.graph
        homes: dict[str, tuple[str, int]] = {}
        for k, block in enumerate(graph.blocks):
            homes |= dict.fromkeys(block.storages, ("IS_BLOCK", k))
        homes |= {t.storage: ("IS_OUTPUT", k) for k, t in enumerate(graph.outputs) if t.is_direct}
        homes |= {t.storage: ("IS_INPUT", k) for k, t in enumerate(graph.inputs)}
        homes |= {t.storage: ("IS_WEIGHT", k) for k, t in enumerate(graph.weights)}
        rows = [f"{{{homes[name][0]}, {homes[name][1]}}}" for name in graph.given]
        yield _array("storage_record", "storages", rows)

    def _blocks(self) -> Iterator[str]:
        rows: list[str] = []
        places: list[int] = []
        for one in self.graph.blocks:
            cells = one.first, one.last, len(one.bytes), len(places), one.likely_offset
            rows.append("{" + ", ".join(map(str, cells)) + "}")
            places += [self.table.at(e) for e in one.bytes]
            self.totals += one.bytes
        yield _array("block_record", "blocks", rows)
        yield _array("int", "block_bytes", places)

    def _names(self) -> Iterator[str]:
        host = self.graph.host
        calls = {
            one.step: one.function for one in host.instructions if isinstance(one, CallLibrary)
        }
        last = max(calls, default=-1) + 1
        steps = [_quoted(calls[k]) if k in calls else "0" for k in range(last)]
        yield f"#define STEPS {len(steps)}"
        yield _array("char *const", "step_names", steps)
        yield _array("char *const", "site_texts", [_quoted(_site(s)) for s in self.unit.sites])
        wanted = [(name, 1 + k) for k, name in enumerate(NEEDED)]
        wanted += [(name, len(NEEDED) + 2 + k) for k, name in enumerate(host.functions)]
        rows = [f"{{{_quoted(name)}, {at}}}" for name, at in wanted]
        yield f"#define FUNCTIONS {len(rows)}"
        yield _array("function_record", "functions", rows)

    # -- functions -------------------------------------------------------------------------
    def functions(self) -> Iterator[str]:
        """What depends on the sizes, as C that computes it."""
        yield "static void fill_numbers(const int64_t *s, int64_t *n)\n{\n    (void)s; (void)n;"
        for k, e in enumerate(self.table.numbers):
            if e.value is None:
                yield f"    n[{self.table.base + k}] = {self.exact.write(e)};"
        yield "}"
        yield "static double needed_bytes(const int64_t *s)"
        yield "{\n    (void)s;\n    double total = 0;"
        for e in dict.fromkeys(self.totals):
            if e.value is None:
                yield f"    total += {self.rough.write(e)};"
        yield "    return total;\n}"
        yield "static const char *broken_constraint(const int64_t *s)\n{\n    (void)s;"
        for c in self.graph.constraints:
            holds = f"{self.exact.write(c.left)} {c.relation} {self.exact.write(c.right)}"
            text = _quoted(shown_constraint(c, self.graph))
            yield f"    if (!({holds})) return {text};"
        yield "    return 0;\n}"


def _site(site: Site) -> str:
    words = site.message
    for hole in ("{found}", "{raw}", "{limit}", "{low}"):
        words = words.replace(hole, hole[1:-1])
    return f"{site.code}: operation '{site.operation}': {words}"


def _array(kind: str, name: str, rows: Sequence[object]) -> str:
    """A constant table; C has none without elements."""
    inner = ",\n    ".join(map(str, rows)) or "0"
    return f"static const {kind} {name}[] = {{\n    {inner}\n}};"


TYPES = """
typedef struct { const char *name; int input, dim; int64_t low, high, divisor; } size_record;
typedef struct {
    const char *name, *shown;
    int type, item, rank, at, bytes_at, offset_at, changes, is_direct, storage, adopted;
} tensor_record;
enum { IS_BLOCK, IS_OUTPUT, IS_INPUT, IS_WEIGHT };
typedef struct { int kind, number; } storage_record;
typedef struct { int first, last, count, bytes_at; int64_t likely_offset; } block_record;
typedef struct { const char *name; int at; } function_record;
"""
"""The records of the tables."""
