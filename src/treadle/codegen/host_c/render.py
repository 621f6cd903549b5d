"""A host function as C text: plain C, no header but stdint.h, every call through a pointer.

    int64_t treadle_host(const int64_t *given, const int64_t *n, int64_t *results)

`n` begins with the addresses of functions: the kernels' entry, what every host needs of the
library (`NEEDED`), whom to call back for what the library's C interface lacks, then what this one
calls. The result is 0, or KERNEL_FAILED with the record at
`treadle_host_error()`, or NO_MEMORY, or the number of the step whose call failed plus 1. What
failed leaves nothing behind: all tensors are let go of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.codegen.c.unit import ERROR_LENGTH
from treadle.codegen.host_c.instructions import (
    AdoptedTensor,
    Allocate,
    CallBack,
    CallLibrary,
    FlagArg,
    HostFunction,
    Instruction,
    LetGo,
    LibraryArg,
    ListArg,
    LookAt,
    MaskArg,
    NumberArg,
    OptionalArg,
    OptionalListArg,
    OptionalNumberArg,
    OptionalWholeArg,
    PlaceIn,
    RunKernels,
    TensorShape,
    ViewArg,
    WholeArg,
)

ENTRY, ERROR = "treadle_host", "treadle_host_error"
KERNEL_FAILED, NO_MEMORY = -1, -2
FLAGS = ("-std=c11", "-O1", "-w")
NEEDED = (
    "aoti_torch_empty_strided",
    "aoti_torch_delete_tensor_object",
    "aoti_torch_create_tensor_from_blob",
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_get_dim",
    "aoti_torch_copy_",
    "aoti_torch_empty_strided",
)
"""What every host function needs of the library, in the order of the table behind the kernels.

Results are allocated by the last one: its place may be taken by what uses their memory again.
"""
BACK_AT = 1 + len(NEEDED)
"""Where the table says whom to call back; then come the functions that this host calls."""

PRELUDE = """#include <stdint.h>
typedef void *tensor;
static _Thread_local int64_t error[%(error)d];
int64_t *%(error_name)s(void) { return error; }
#define KERNELS ((int (*)(void *const *, const int64_t *, int64_t *, int64_t, int64_t))n[0])
typedef int (*empty_function)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t,
                              tensor *);
typedef int (*look_function)(void *, int64_t, const int64_t *, const int64_t *, int64_t, int32_t,
                             int32_t, int32_t, tensor *);
#define DEVICE %(device)s
#define EMPTY ((empty_function)n[1])
#define DELETE ((int (*)(tensor))n[2])
#define LOOK ((look_function)n[3])
#define ADDRESS ((int (*)(tensor, void **))n[4])
#define SIZES ((int (*)(tensor, int64_t **))n[5])
#define STRIDES ((int (*)(tensor, int64_t **))n[6])
#define DIMS ((int (*)(tensor, int64_t *))n[7])
#define COPY ((int (*)(tensor, tensor, int32_t))n[8])
#define EMPTY_RESULT ((empty_function)n[9])
#define BACK ((int (*)(int64_t, tensor *, tensor **))n[10])
static int allocate(const int64_t *n, empty_function empty, int64_t dims, const int64_t *at,
                    tensor *made, void **address)
{
    if (empty(dims, at, at + dims, (int32_t)at[2 * dims], DEVICE, made)) return 1;
    return ADDRESS(*made, address);
}
/* A result that lies in another way than was promised is copied. */
static int adopt(const int64_t *n, int64_t dims, const int64_t *at, tensor *made, void **address)
{
    int64_t count, *sizes, *strides;
    int same = 1;
    if (DIMS(*made, &count) || SIZES(*made, &sizes) || STRIDES(*made, &strides)) return 1;
    if (count != dims) return 1;
    for (int64_t k = 0; k < dims; ++k) {
        if (sizes[k] != at[k]) return 1;
        if (sizes[k] > 1 && strides[k] != at[dims + k]) same = 0;
    }
    if (!same) {
        tensor moved = 0;
        if (EMPTY(dims, at, at + dims, (int32_t)at[2 * dims], DEVICE, &moved)) return 1;
        if (COPY(moved, *made, 0)) { DELETE(moved); return 1; }
        DELETE(*made);
        *made = moved;
    }
    return ADDRESS(*made, address);
}
"""


def render_host(host: HostFunction) -> str:
    """The text of a host function."""
    known = {name: k for k, name in enumerate(host.functions, start=BACK_AT + 1)}
    writer = _Writer(known, host.sizes_at)
    body: list[str] = []
    for one in host.instructions:
        body += RENDERED[type(one)](writer, one)
    given = [f"    a[{slot}] = (void *)given[{k}];" for k, slot in enumerate(host.given)]
    first = len(host.given)
    given += [f"    h[{x}] = (tensor)given[{first + k}];" for k, x in enumerate(host.owned)]
    device = f"{host.device[0]}, {host.device[1]}"
    kept = [f"    results[{k}] = (int64_t)h[{x}];" for k, x in enumerate(host.results)]
    lines = [
        PRELUDE % {"error": ERROR_LENGTH, "error_name": ERROR, "device": device},
        f"int64_t {ENTRY}(const int64_t *given, const int64_t *n, int64_t *results)",
        "{",
        f"    void *a[{max(host.slots, 1)}] = {{0}};",
        f"    tensor h[{max(host.handles, 1)}] = {{0}}, v[{max(host.views, 1)}] = {{0}};",
        "    int64_t status = 0;",
        *given,
        *body,
        *kept,
        "done:",
        f"    for (int k = 0; k < {host.views}; ++k) if (v[k]) DELETE(v[k]);",
        f"    if (status) for (int k = 0; k < {host.handles}; ++k) if (h[k]) DELETE(h[k]);",
        "    return status;",
        "}",
        "",
    ]
    return "\n".join(lines)


class _Writer:
    """Writes instructions one by one."""

    def __init__(self, functions: Mapping[str, int], sizes_at: int) -> None:
        self.functions, self.sizes_at = functions, sizes_at
        self.step = 0

    def allocate(self, one: Any) -> list[str]:
        empty = "EMPTY_RESULT" if one.is_result else "EMPTY"
        given = f"n, {empty}, {_shape(one.shape)}, &h[{one.handle}], &a[{one.slot}]"
        return [f"    if (allocate({given})) {_fail(NO_MEMORY - 1)}"]

    def place(self, one: Any) -> list[str]:
        return [f"    a[{one.slot}] = (char *)a[{one.base}] + n[{one.offset_at}];"]

    def let_go(self, one: Any) -> list[str]:
        return [f"    DELETE(h[{one.handle}]); h[{one.handle}] = 0;"]

    def kernels(self, one: Any) -> list[str]:
        given = f"a, n + {self.sizes_at}, error, {one.first}, {one.last}"
        return [f"    if (KERNELS({given})) {{ status = {KERNEL_FAILED}; goto done; }}"]

    def look(self, one: Any) -> list[str]:
        dims, at = one.shape.dims, one.shape.at
        memory = f"(char *)a[{one.slot}] + n[{one.offset_at}]"
        rest = f"{dims}, n + {at}, n + {at + dims}, 0, (int32_t)n[{at + 2 * dims}], DEVICE"
        return [f"    if (LOOK({memory}, {rest}, &v[{one.view}])) {_fail(NO_MEMORY - 1)}"]

    def call(self, one: Any) -> list[str]:
        types: list[str] = []
        args: list[str] = []
        for arg in one.args:
            kinds, texts = ARGS[type(arg)](arg)
            types += kinds
            args += texts
        lines = []
        for k, made in enumerate(one.made):
            types.append("tensor *")
            if made is None:
                lines.append(f"    tensor unwanted{one.step}_{k} = 0;")
                args.append(f"&unwanted{one.step}_{k}")
            else:
                args.append(f"&h[{made.handle}]")
        function = f"((int (*)({', '.join(types)}))n[{self.functions[one.function]}])"
        lines.append(f"    if ({function}({', '.join(args)})) {_fail(one.step)}")
        for k, made in enumerate(one.made):
            if made is None:
                name = f"unwanted{one.step}_{k}"
                lines.append(f"    if ({name}) DELETE({name});")
            else:
                lines.append(self._adopted(made, one.step))
        return lines

    def back(self, one: Any) -> list[str]:
        made = ", ".join(f"&h[{m.handle}]" for m in one.made)
        lines = [f"    {{ tensor given[{max(len(one.given), 1)}] = {{0}};"]
        for k, view in enumerate(one.given):
            dims, at = view.shape.dims, view.shape.at
            rest = f"{dims}, n + {at}, n + {at + dims}, 0, (int32_t)n[{at + 2 * dims}], DEVICE"
            lines.append(f"    LOOK(a[{view.slot}], {rest}, &given[{k}]);")
        lines.append(f"    tensor *made[] = {{{made or '0'}}};")
        lines.append(f"    if (BACK({one.step}, given, made)) {_fail(one.step)} }}")
        return [*lines, *[self._adopted(m, one.step) for m in one.made]]

    def _adopted(self, made: AdoptedTensor, step: int) -> str:
        given = f"n, {_shape(made.shape)}, &h[{made.handle}], &a[{made.slot}]"
        return f"    if (adopt({given})) {_fail(step)}"


def _shape(shape: TensorShape) -> str:
    return f"{shape.dims}, n + {shape.at}"


def _fail(step: int) -> str:
    return f"{{ status = {step + 1}; goto done; }}"


def _optional_number(arg: Any) -> tuple[list[str], list[str]]:
    return ["double *"], ["0" if arg.value is None else f"(double[]){{{arg.value!r}}}"]


def _mask(arg: Any) -> tuple[list[str], list[str]]:
    values = ", ".join(str(int(x)) for x in arg.values)
    return ["const int32_t *", "int64_t"], [f"(int32_t[]){{{values}}}", str(len(arg.values))]


def _optional_list(arg: Any) -> tuple[list[str], list[str]]:
    types = ["const int64_t **", "int64_t"]
    if arg.count is None:
        return types, ["0", "0"]
    return types, [f"(const int64_t *[]){{n + {arg.at}}}", str(arg.count)]


ARGS: Mapping[type[LibraryArg], Callable[[Any], tuple[list[str], list[str]]]] = {
    ViewArg: lambda a: (["tensor"], [f"v[{a.view}]"]),
    OptionalArg: lambda a: (["tensor *"], ["0" if a.view is None else f"&v[{a.view}]"]),
    NumberArg: lambda a: (["double"], [repr(a.value)]),
    OptionalNumberArg: _optional_number,
    WholeArg: lambda a: (["int64_t"], [f"n[{a.at}]"]),
    OptionalWholeArg: lambda a: (["const int64_t *"], ["0" if a.at is None else f"n + {a.at}"]),
    FlagArg: lambda a: (["int32_t"], [str(int(a.value))]),
    ListArg: lambda a: (["const int64_t *", "int64_t"], [f"n + {a.at}", str(a.count)]),
    MaskArg: _mask,
    OptionalListArg: _optional_list,
}
"""The C types and texts of every kind of argument."""

RENDERED: Mapping[type[Instruction], Callable[[_Writer, Any], list[str]]] = {
    Allocate: _Writer.allocate,
    PlaceIn: _Writer.place,
    LetGo: _Writer.let_go,
    RunKernels: _Writer.kernels,
    LookAt: _Writer.look,
    CallLibrary: _Writer.call,
    CallBack: _Writer.back,
}
"""How every kind of instruction is written."""
