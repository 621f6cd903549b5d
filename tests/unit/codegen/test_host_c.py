"""Host functions in C: every kind of instruction and argument is written, and how."""

from __future__ import annotations

from treadle.codegen.host_c import instructions as given
from treadle.codegen.host_c.render import ARGS, BACK_AT, NEEDED, RENDERED, render_host


def kinds(alias: object) -> set[type]:
    names = str(alias).replace("'", "").replace('"', "").split("|")
    return {getattr(given, name.strip()) for name in names}


def test_every_kind_of_instruction_is_written() -> None:
    assert set(RENDERED) == kinds(given.Instruction)


def test_every_kind_of_argument_is_written() -> None:
    assert set(ARGS) == kinds(given.LibraryArg)


def host(*code: given.Instruction, functions: tuple[str, ...] = ()) -> str:
    return render_host(
        given.HostFunction(
            slots=4, given=(0, 1), owned=(0,), handles=3, views=2, functions=functions,
            sizes_at=30, instructions=code, results=(1,),
        )
    )  # fmt: skip


def test_a_function_takes_addresses_does_its_steps_and_gives_handles() -> None:
    shape = given.TensorShape(2, 40)
    text = host(
        given.Allocate(1, 2, shape),
        given.PlaceIn(3, 2, 45),
        given.RunKernels(0, 2),
        given.LookAt(0, 3, 46, shape),
        given.CallLibrary(
            "f", (given.ViewArg(0), given.NumberArg(0.5), given.OptionalArg(None)), (), 4
        ),
        given.LetGo(0),
        functions=("f",),
    )
    lines = [line.strip() for line in text.splitlines()]
    body = lines[lines.index("int64_t status = 0;") :]
    assert body[1:4] == [
        "a[0] = (void *)given[0];",
        "a[1] = (void *)given[1];",
        "h[0] = (tensor)given[2];",
    ]
    assert body[4].startswith("if (allocate(n, EMPTY, 2, n + 40, &h[1], &a[2]))")
    assert body[5] == "a[3] = (char *)a[2] + n[45];"
    assert body[6].startswith("if (KERNELS(a, n + 30, error, 0, 2))")
    call = f"((int (*)(tensor, double, tensor *))n[{BACK_AT + 1}])(v[0], 0.5, 0)"
    assert body[8] == f"if ({call}) {{ status = 5; goto done; }}"
    assert body[9] == "DELETE(h[0]); h[0] = 0;"
    assert body[10] == "results[0] = (int64_t)h[1];"


def test_what_fails_leaves_nothing_behind() -> None:
    text = host(given.RunKernels(0, 1))
    assert "if (status) for (int k = 0; k < 3; ++k) if (h[k]) DELETE(h[k]);" in text


def test_numbers_that_depend_on_sizes_are_not_in_the_text() -> None:
    shape = given.TensorShape(1, 77)
    text = host(
        given.CallBack((given.GivenView(0, shape),), (given.AdoptedTensor(2, 3, shape),), 1)
    )
    assert "LOOK(a[0], 1, n + 77, n + 78, 0, (int32_t)n[79], DEVICE, &given[0]);" in text
    assert "if (adopt(n, 1, n + 77, &h[2], &a[3]))" in text
    assert len(NEEDED) + 1 == BACK_AT
