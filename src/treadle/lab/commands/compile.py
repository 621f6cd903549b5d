"""`treadle compile module.py:model`: a model ahead of time, as a package that needs no Python.

Also of a program that torch.export saved (`.pt2`), and of a program or dump, whose kernels are
written as C or Triton.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from treadle.core.errors import UsageError
from treadle.lab.compiling import TARGETS, compile_file
from treadle.lab.output import emit, human_bytes
from treadle.runtime.packages import manifest as about
from treadle.runtime.packages.input_texts import dynamic_texts, tensor_text
from treadle.runtime.triton_ahead import rows_of
from treadle.schedule.policy import POLICIES

EXPORTED = ".pt2"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `compile`."""
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="module.py:model, a .pt2 file of torch.export, a Treadle program, or a dump",
    )
    parser.add_argument(
        "--inputs", nargs="+", metavar="T", help="example inputs of a model: 'f32[8, 128]' 'i64[8]'"
    )
    parser.add_argument(
        "--dynamic",
        action="append",
        default=[],
        metavar="I:D=NAME",
        help="a size that varies: dimension D of input I (name or number); NAME[1..64] bounds it",
    )
    parser.add_argument("-o", dest="out", metavar="OUT", help="the package: a folder, or OUT.zip")
    parser.add_argument(
        "--target", choices=TARGETS, default="c", help="what kernels are written in (default: c)"
    )
    parser.add_argument(
        "--arch",
        action="append",
        default=[],
        metavar="DEVICE",
        help="with --target triton: also compile for sm_90, sm_100, gfx942 (no device is needed)",
    )
    parser.add_argument("--name", help="what C functions are called; by default as the model is")
    parser.add_argument(
        "--weights",
        choices=("file", "names"),
        default="file",
        help="names: whoever loads the package gives the weights",
    )
    parser.add_argument(
        "--portable", action="store_true", help="for any processor of this kind, not one like this"
    )
    parser.add_argument("--policy", choices=sorted(POLICIES), help="what fusion may do and cost")
    parser.add_argument("--force", action="store_true", help="OUT may be there already")


def run(args: argparse.Namespace) -> int:
    """Compile what was named and say what was written."""
    file, colon, attribute = args.what.rpartition(":")
    if args.what.endswith(EXPORTED):
        return _report(args, _exported(args))
    if colon and (file.endswith(".py") or not os.path.exists(args.what)):
        return _report(args, _model(args, file, attribute))
    if args.what.endswith(".py"):
        message = f"which model of {args.what}? say {args.what}:NAME"
        raise UsageError(message, code="PKG005")
    for option in ("inputs", "dynamic", "name"):
        if getattr(args, option):
            raise UsageError(
                f"--{option} is for models, not for a file of a program", code="OPT002"
            )
    if args.arch and args.target != "triton":
        raise UsageError("--arch names a GPU: it goes with --target triton", code="OPT002")
    how = args.target, args.out, args.policy, args.force, args.portable, args.arch
    made = compile_file(args.what, *how)
    if made.is_package:
        return _report(args, made.path)
    lines = [f"wrote {made.path}: {made.kernels} kernels in {args.target}, the plan, the manifest"]
    for arch in args.arch:
        ours = [one for one in made.ahead if one.arch == arch]
        spilled = sum(one.spilled > 0 for one in ours)
        most = max([one.registers for one in ours], default=0)
        lines.append(f"{arch}: {len(ours)} functions, {most} registers at most, {spilled} spill")
    if made.calls:
        lines.append(f"not a package: it calls {', '.join(made.calls[:5])}")
    data = {
        "path": made.path,
        "kernels": made.kernels,
        "calls": list(made.calls),
        "package": False,
        "binaries": list(rows_of(made.ahead)),
    }
    emit(args.json, data, lines)
    return 0


def _needs_c(args: argparse.Namespace) -> None:
    if args.target != "c":
        message = "a model becomes a package in C; --target triton is for programs and dumps"
        raise UsageError(message, code="OPT002")


def _exported(args: argparse.Namespace) -> str:
    _needs_c(args)
    if args.inputs or args.dynamic:
        message = "a program of torch.export has its inputs and dynamic sizes already"
        raise UsageError(message, code="OPT002")
    from treadle.frontends.torch.capture.find_model import exported_program
    from treadle.frontends.torch.capture.package import package

    name = args.name or os.path.splitext(os.path.basename(args.what))[0]
    return package(exported_program(args.what), (), args.out, name=name, **_settings(args))


def _model(args: argparse.Namespace, file: str, attribute: str) -> str:
    _needs_c(args)
    texts = [tensor_text(text) for text in args.inputs or ()]
    dynamic = dynamic_texts(args.dynamic)
    from treadle.frontends.torch.capture.find_model import (
        as_inputs,
        example_tensors,
        model_in_file,
    )
    from treadle.frontends.torch.capture.package import package

    model, examples = model_in_file(file, attribute)
    named: dict[str, Any] = {}
    if texts:
        given = example_tensors(texts)
    elif examples is not None:
        given, named = as_inputs(examples, file)
    else:
        message = f"{file} has no example_inputs: name inputs, such as --inputs 'f32[8, 128]'"
        raise UsageError(message, code="PKG005")
    return package(
        model, given, args.out, kwargs=named, dynamic=dynamic, name=args.name or attribute,
        **_settings(args),
    )  # fmt: skip


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    options = {} if args.policy is None else {"policy": args.policy}
    return {
        "weights": args.weights, "portable": args.portable, "force": args.force, "options": options,
    }  # fmt: skip


def _report(args: argparse.Namespace, path: str) -> int:
    """What is in a package that was just written."""
    found = _manifest(path)
    lines = [f"wrote {path}"]
    for title in ("inputs", "outputs"):
        for one in found[title]:
            shape = ", ".join(map(str, one["shape"]))
            changed = ", changed by a run" if one["changes"] else ""
            lines.append(f"  {title[:-1]} {one['name']} : {one['dtype']}[{shape}]{changed}")
    for one in found["sizes"]:
        most = "any number" if one["high"] is None else one["high"]
        lines.append(f"  size {one['name']}: {one['low']} to {most}")
    lines += [f"  it must hold that {text}" for text in found["constraints"]]
    weights = sum(one["bytes"] for one in found["weights"])
    where = "in the package" if found["weights_in"] != "caller" else "given by who loads it"
    if found["weights"]:
        lines.append(f"  {len(found['weights'])} weights, {human_bytes(weights)}, {where}")
    needs = f"torch {found['torch']}, without Python" if found["torch"] else "nothing but C"
    lines.append(f"  needs {needs}; run it: treadle run {path} --random 0")
    data = {"path": path, "package": True, "manifest": found}
    emit(args.json, data, lines)
    return 0


def _manifest(path: str) -> dict[str, Any]:
    import zipfile

    if os.path.isdir(path):
        with open(os.path.join(path, about.NAME), "rb") as file:
            content = file.read()
    else:
        with zipfile.ZipFile(path) as archive:
            content = archive.read(about.NAME)
    found: dict[str, Any] = json.loads(content)
    return found
