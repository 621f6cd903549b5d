"""Makes the XLA dumps in the folder `gpu` with JAX: `python make_gpu_dumps.py OUT_DIR [WORKERS]`.

Made with JAX 0.11.2 on an H200; without a GPU, JAX takes the CPU and the dumps are CPU dumps. Of
each program only the module compiled for it is kept: the HLO text after optimizations, the buffer
assignment, its values, the live ranges and the report. Names of devices and of folders are left
out of file names and texts. Of the 24 dumps (twelve programs, two element types) twelve are kept
here, and few of the reports.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=jit_program.*"
WANTED = re.compile(
    r"module_\d+\.jit_program\.(?:sm_[0-9.]+a?_)?(?P<rest>.*after_optimizations.*\.txt)$"
)


def dense(sizes, dtype, seed=0):
    import jax

    keys = jax.random.split(jax.random.key(seed), len(sizes))
    shapes = itertools.pairwise(sizes)
    return [jax.random.normal(k, shape, dtype) * 0.05 for k, shape in zip(keys, shapes)]


def mlp_train(dtype):
    import jax
    import jax.numpy as jnp

    weights = dense([64, 128, 128, 32], dtype)

    def loss(ws, x, y):
        for w in ws[:-1]:
            x = jax.nn.gelu(x @ w)
        return jnp.mean((x @ ws[-1] - y).astype(jnp.float32) ** 2)

    def program(ws, x, y):
        value, grads = jax.value_and_grad(loss)(ws, x, y)
        return value, [w - 0.01 * g.astype(w.dtype) for w, g in zip(ws, grads, strict=True)]

    return program, (weights, jnp.ones((256, 64), dtype), jnp.ones((256, 32), dtype))


def attention(x, w, heads):
    import jax
    import jax.numpy as jnp

    t, c = x.shape[-2:]
    q, k, v = jnp.split(x @ w, 3, axis=-1)
    q, k, v = (a.reshape(-1, t, heads, c // heads).swapaxes(1, 2) for a in (q, k, v))
    scores = (q @ k.swapaxes(-1, -2)).astype(jnp.float32) / (c // heads) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
    mixed = jax.nn.softmax(scores, axis=-1).astype(x.dtype) @ v
    return mixed.swapaxes(1, 2).reshape(-1, t, c)


def norm(x, g):
    import jax
    import jax.numpy as jnp

    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(x.dtype) * g


def block(x, p, heads=4):
    import jax

    x = x + attention(norm(x, p["g1"]), p["qkv"], heads) @ p["out"]
    return x + jax.nn.silu(norm(x, p["g2"]) @ p["up"]) @ p["down"]


def block_weights(c, dtype, seed):
    import jax.numpy as jnp

    qkv = dense([c, 3 * c], dtype, seed)[0]
    out = dense([c, c], dtype, seed + 1)[0]
    up, down = dense([c, 4 * c], dtype, seed + 2)[0], dense([4 * c, c], dtype, seed + 3)[0]
    gains = {"g1": jnp.ones(c, dtype), "g2": jnp.ones(c, dtype)}
    return {"qkv": qkv, "out": out, "up": up, "down": down, **gains}


def transformer_train(dtype):
    import jax
    import jax.numpy as jnp

    c, vocabulary = 64, 256
    blocks = [block_weights(c, dtype, 10 * i) for i in (1, 2)]
    params = {"emb": dense([vocabulary, c], dtype)[0], "blocks": blocks}

    def loss(p, ids):
        x = p["emb"][ids[:, :-1]]
        for b in p["blocks"]:
            x = block(x, b)
        logits = (x @ p["emb"].T).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1))

    def program(p, m, ids):
        value, grads = jax.value_and_grad(loss)(p, ids)
        m = jax.tree.map(lambda a, g: 0.9 * a + g, m, grads)
        return value, jax.tree.map(lambda w, a: (w - 0.01 * a).astype(w.dtype), p, m), m

    ids = jnp.zeros((2, 33), jnp.int32)
    return program, (params, jax.tree.map(jnp.zeros_like, params), ids), (0, 1)


def scan_rnn(dtype):
    import jax
    import jax.numpy as jnp

    w, u = dense([64, 64], dtype)[0], dense([32, 64], dtype, 1)[0]

    def program(w, u, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x @ u)
            return h, h.sum(-1)

        return jax.lax.scan(step, jnp.zeros((8, 64), w.dtype), xs)

    return program, (w, u, jnp.ones((20, 8, 32), dtype))


def scan_train(dtype):
    import jax
    import jax.numpy as jnp

    w, u = dense([64, 64], dtype)[0], dense([32, 64], dtype, 1)[0]

    def loss(p, xs):
        def step(h, x):
            h = jnp.tanh(h @ p[0] + x @ p[1])
            return h, h

        h, ys = jax.lax.scan(step, jnp.zeros((8, 64), dtype), xs)
        return jnp.mean((ys * ys).astype(jnp.float32)) + jnp.sum(h.astype(jnp.float32))

    def program(p, xs):
        return jax.value_and_grad(loss)(p, xs)

    return program, ((w, u), jnp.ones((20, 8, 32), dtype))


def while_newton(dtype):
    import jax
    import jax.numpy as jnp

    def program(a, b):
        def more(s):
            x, i = s
            return (jnp.max(jnp.abs(a @ x - b)) > 1e-3) & (i < 50)

        def step(s):
            x, i = s
            d = jnp.diagonal(a)
            return x + (b - a @ x) / d, i + 1

        return jax.lax.while_loop(more, step, (jnp.zeros_like(b), 0))

    return program, (jnp.eye(128, dtype=dtype) * 4 + 0.01, jnp.ones(128, dtype))


def conditional(dtype):
    import jax
    import jax.numpy as jnp

    w = dense([64, 64], dtype)[0]

    def program(which, x, w):
        branches = [
            lambda v: (jnp.tanh(v @ w), v.sum()),
            lambda v: (v @ w @ w, v.max()),
            lambda v: (v, v.min()),
        ]
        y = jax.lax.switch(which, branches, x)
        z = jax.lax.cond(y[1] > 0, lambda v: jnp.cumsum(v, 0), lambda v: v * 2, y[0])
        return z, y[1]

    return program, (jnp.int32(1), jnp.ones((128, 64), dtype), w)


def sorting(dtype):
    import jax
    import jax.numpy as jnp

    def program(x):
        order = jnp.argsort(x, axis=-1)
        top, at = jax.lax.top_k(x, 8)
        in_order = jnp.take_along_axis(x, order, -1)
        return in_order - x.mean(-1, keepdims=True), top, at, jnp.median(x, -1)

    numbers = jnp.arange(64 * 512, dtype=jnp.float32)
    return program, (numbers.reshape(64, 512).astype(dtype),)


def conv_train(dtype):
    import jax
    import jax.numpy as jnp

    def kernel(i, o, seed):
        return jax.random.normal(jax.random.key(seed), (3, 3, i, o), dtype) * 0.1

    params = [kernel(3, 16, 0), kernel(16, 32, 1), dense([32, 10], dtype, 3)[0]]

    layout = ("NHWC", "HWIO", "NHWC")

    def loss(p, x, y):
        for k, n in zip(p[:2], (1, 2), strict=True):
            x = jax.lax.conv_general_dilated(x, k, (n, n), "SAME", dimension_numbers=layout)
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            x = jax.nn.relu((x - mean) * jax.lax.rsqrt(var + 1e-5))
        window = (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        logits = (x.mean((1, 2)) @ p[2]).astype(jnp.float32)
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

    def program(p, x, y):
        value, grads = jax.value_and_grad(loss)(p, x, y)
        return value, [w - 0.1 * g for w, g in zip(p, grads, strict=True)]

    labels = jnp.ones((4, 10), jnp.float32) / 10
    return program, (params, jnp.ones((4, 16, 16, 3), dtype), labels)


def decode_step(dtype):
    import jax
    import jax.numpy as jnp

    c, t, heads = 64, 128, 4
    one = (4, heads, 1, c // heads)
    params = [block_weights(c, dtype, 10 * i) for i in (1, 2)]
    caches = jnp.zeros((2, 2, 4, heads, t, c // heads), dtype)

    def program(ps, caches, x, at):
        new = []
        for p, (keys, values) in zip(ps, caches, strict=True):
            parts = jnp.split(norm(x, p["g1"]) @ p["qkv"], 3, -1)
            q, k, v = (part.reshape(one) for part in parts)
            keys = jax.lax.dynamic_update_slice(keys, k, (0, 0, at, 0))
            values = jax.lax.dynamic_update_slice(values, v, (0, 0, at, 0))
            s = (q @ keys.swapaxes(-1, -2)).astype(jnp.float32) / (c // heads) ** 0.5
            s = jax.nn.softmax(jnp.where(jnp.arange(t) <= at, s, -1e9), -1).astype(dtype)
            x = x + (s @ values).reshape(4, c) @ p["out"]
            x = x + jax.nn.silu(norm(x, p["g2"]) @ p["up"]) @ p["down"]
            new.append((keys, values))
        return x, jax.lax.dynamic_slice(new[0][0], (0, 0, at, 0), one), new

    pairs = [(a[0], a[1]) for a in caches]
    return program, (params, pairs, jnp.ones((4, c), dtype), jnp.int32(5)), (1,)


def decode_loop(dtype):
    import jax
    import jax.numpy as jnp

    w = dense([64, 64], dtype)[0]

    def program(cache, x, w):
        def step(i, s):
            cache, x = s
            cache = jax.lax.dynamic_update_slice(cache, x[None], (i, 0, 0))
            seen = (jnp.arange(32) <= i)[:, None, None]
            return cache, jnp.tanh((cache * seen).sum(0).astype(x.dtype) @ w)

        return jax.lax.fori_loop(0, 32, step, (cache, x))

    return program, (jnp.zeros((32, 8, 64), dtype), jnp.ones((8, 64), dtype), w), (0,)


def cumulative(dtype):
    import jax
    import jax.numpy as jnp

    def program(x):
        doubled = jnp.cumsum(jax.nn.relu(x), 1) * 2
        return doubled, jax.lax.cumlogsumexp(x, 1), jnp.cumprod(x, 0).sum(), x.var(1)

    return program, (jnp.ones((64, 256), dtype),)


def scatter_gather(dtype):
    import jax.numpy as jnp

    def program(table, ids, rows):
        table = table.at[ids].add(rows)
        rows = jnp.sort(table[ids * 2 % 100], axis=0)
        return table, rows, jnp.argmax(table, 1), jnp.unique(ids, size=16)

    ids = jnp.arange(24, dtype=jnp.int32)
    return program, (jnp.ones((100, 32), dtype), ids, jnp.ones((24, 32), dtype)), (0,)


PROGRAMS = {
    "mlp_train": mlp_train,
    "transformer_train": transformer_train,
    "scan_rnn": scan_rnn,
    "scan_train": scan_train,
    "while_newton": while_newton,
    "conditional": conditional,
    "sorting": sorting,
    "conv_train": conv_train,
    "decode_step": decode_step,
    "decode_loop": decode_loop,
    "cumulative": cumulative,
    "scatter_gather": scatter_gather,
}


def compile_one(name: str, dtype: str) -> None:
    """Compile one program in this process, with the flags of the environment."""
    import jax
    import jax.numpy as jnp

    made = PROGRAMS[name](jnp.dtype(dtype))
    program, arguments = made[0], made[1]
    jax.jit(program, donate_argnums=made[2] if len(made) > 2 else ()).lower(*arguments).compile()


def dump_one(name: str, dtype: str, out: pathlib.Path) -> None:
    """Compile one program in a process of its own and keep the files wanted."""
    with tempfile.TemporaryDirectory() as folder:
        flags = {"XLA_FLAGS": FLAGS.format(folder), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        command = [sys.executable, __file__, "--one", name, dtype]
        done = subprocess.run(command, env=os.environ | flags, capture_output=True, text=True)
        if done.returncode:
            print(name, dtype, "failed:", done.stderr[-600:])
            return
        here = str(pathlib.Path(__file__).absolute().parent) + os.sep
        for path in sorted(pathlib.Path(folder).iterdir()):
            if match := WANTED.match(path.name):
                text = path.read_text("utf-8").replace(here, "")
                (out / f"{name}_{dtype}.{match['rest']}").write_text(text, "utf-8")
    print(name, dtype, "made")


def main() -> None:
    """Make every dump, or the one asked for."""
    if sys.argv[1] == "--one":
        compile_one(sys.argv[2], sys.argv[3])
        return
    from concurrent.futures import ThreadPoolExecutor

    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    todo = [(name, dtype) for name in PROGRAMS for dtype in ("float32", "bfloat16")]
    with ThreadPoolExecutor(int(sys.argv[2]) if len(sys.argv) > 2 else 1) as pool:
        list(pool.map(lambda item: dump_one(*item, out), todo))


if __name__ == "__main__":
    main()
