"""Small random models of `transformers` through the backend: graphs, kernels, shares, errors.

  python bench/models.py [--save] [--only llama,bert] [--family]

For each model one forward pass without gradients and one training step, eager and compiled:
graphs and kernels; calls of torch's own operators by name; the share of nodes, and of operations,
that were generated (products, convolutions and attention apart); the largest difference of results
and of gradients as a share of the tensor's largest element; seconds of the first calls, most of
which is compiling. The models are those of tests/models/model_zoo.py; with --family, some sixty
other language models (tests/models/model_family.py), saved as model_family.json.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from common import HERE, parser, report

sys.path.insert(0, str(HERE.parent / "tests" / "models"))


def row(name: str) -> dict[str, Any]:
    """One model, measured."""
    from model_compare import compare
    from model_family import family
    from model_zoo import MODELS, example

    start = time.perf_counter()
    found = compare(example(name) if name in MODELS else family(name))
    return {
        "model": name,
        "graphs": found.graphs,
        "kernels": found.kernels,
        "calls": dict(found.calls.most_common()),
        "fallbacks": {k: [n, found.reasons[k]] for k, n in found.fallbacks.items()},
        "share_generated": round(found.share, 4),
        "share_of_loops": round(found.share_of_loops, 4),
        "forward_error": float(f"{found.forward_error:.2g}"),
        "gradient_error": float(f"{found.gradient_error:.2g}"),
        "compile_s": round(found.compile_seconds, 2),
        "seconds": round(time.perf_counter() - start, 2),
    }


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="models, separated by commas")
    arguments.add_argument("--family", action="store_true", help="other models, many")
    args = arguments.parse_args()
    import torch
    import transformers
    from model_family import FAMILY
    from model_zoo import MODELS

    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    rows = []
    for name in args.only.split(",") if args.only else FAMILY if args.family else MODELS:
        rows.append(row(name))
        print(rows[-1], file=sys.stderr, flush=True)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    report("model_family" if args.family else "models", {**versions, "models": rows}, args.save)


if __name__ == "__main__":
    main()
