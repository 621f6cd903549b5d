"""Instructions that a GPU carries out for each element of a function, counted in code for sm_90.

  python bench/gpu_instructions.py [--save]

No GPU is needed: Triton compiles a kernel that loads bf16, applies the function and stores bf16,
and its disassembler shows the code. `instructions` is what the kernel has more than one that
copies, for each of the 32 elements that a lane takes, the two conversions of an element included;
`slow` counts those of the unit for powers, roots and conversions among them.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import parser, report
from treadle.codegen.triton.functions import source_of
from treadle.codegen.triton.ops import SHORT, helpers_in

ARCH, WARPS, POINTS = 90, 4, 4096
FUNCTIONS = {
    "gelu": "x * tr_gelu_gate(x)",
    "gelu by erf": "x * 0.5 * (1.0 + tr_erf(x * 0.7071067811865476))",
    "gelu_slope": "tr_gelu_slope(x)",
    "gelu_slope by gelu_tilt": "0.5 + tr_gelu_tilt(x)",
    "sigmoid": "tr_sigmoid(x)",
    "tanh": "tr_tanh(x)",
    "tanh, rounded next": SHORT["tanh"].format(a="x"),
    "exp": "tl.exp(x)",
    "exp, rounded next": SHORT["exp"].format(a="x"),
    "erf": "tr_erf(x)",
    "division": "1.0 / x",
    "log": "tl.log(x)",
    "log1p": "tr_log1p(x)",
}
KERNEL = """
import triton
import triton.language as tl
{helpers}
@triton.jit
def kernel(a, b):
    i = tl.program_id(0) * {points} + tl.arange(0, {points})
    x = tl.load(tl.multiple_of(a, 16) + i).to(tl.float32)
    y = {text}
    tl.store(tl.multiple_of(b, 16) + i, y.to(tl.bfloat16))
"""
LINE = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)", re.M)
SLOW = ("MUFU", "F2F")


def code_of(text: str, folder: str) -> Counter[str]:
    """The instructions of a kernel that applies an expression of x, by name."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = Path(folder) / f"kernel_{len(list(Path(folder).iterdir()))}.py"
    helpers = source_of(helpers_in(text))
    path.write_text(KERNEL.format(helpers=helpers, text=text, points=POINTS))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    aligned = {(k,): [["tt.divisibility", 16]] for k in range(2)}
    source = ASTSource(module.kernel, {"a": "*bf16", "b": "*bf16"}, {}, aligned)
    made = triton.compile(source, GPUTarget("cuda", ARCH, 32), {"num_warps": WARPS})
    binary = path.with_suffix(".cubin")
    binary.write_bytes(made.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    ran = subprocess.run([str(tool), "-c", str(binary)], capture_output=True, text=True, check=True)
    found = Counter(LINE.findall(ran.stdout))
    found.pop("NOP", None)
    return found


def main() -> None:
    """Count them all."""
    args = parser(__doc__).parse_args()
    a_lane = POINTS // (32 * WARPS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        copied = sum(code_of("x", folder).values())
        for name, text in FUNCTIONS.items():
            code = code_of(text, folder)
            slow = sum(n for op, n in code.items() if op.startswith(SLOW))
            more = (sum(code.values()) - copied) / a_lane
            rows.append(
                {"function": name, "instructions": round(more, 1), "slow": round(slow / a_lane, 1)}
            )
            print(f"{more:6.1f} {slow / a_lane:5.1f}  {name}", file=sys.stderr)
    report("gpu_instructions", {"arch": f"sm_{ARCH}", "rows": rows}, args.save)


if __name__ == "__main__":
    main()
