"""Each primitive by itself: NumPy and ONNX Runtime compute what JAX computes, for any number of environments."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.config import LEAVES
from proximo.config.custom import choices
from proximo.export import flat_jaxpr, sizes
from proximo.export.translation import RULES, translate

from exports import by_numpy, by_onnx

K = 6
TABLE = np.random.default_rng(5).normal(size=(4, 3)).astype(np.float32)
IMAGE = (9, 8, 4)

ELEMENTWISE = {
    "neg": lambda x, **_: -x,
    "rounding": lambda x, **_: jnp.stack([jnp.round(3 * x), jnp.floor(x), jnp.ceil(x), jax.lax.round(2 * x), jnp.trunc(x)]),
    "exp": lambda x, **_: jnp.exp(x) + jnp.exp2(x) + jnp.expm1(x),
    "log": lambda x, **_: jnp.log(jnp.abs(x) + 1) + jnp.log1p(x * x),
    "roots": lambda x, **_: jnp.sqrt(x * x) + jax.lax.rsqrt(1 + x * x) + jnp.cbrt(x),
    "angles": lambda x, **_: jnp.sin(x) + jnp.cos(x) + jnp.arctan(x) + jnp.tan(x / 3),
    "arcs": lambda x, **_: jnp.arcsin(jnp.tanh(x)) + jnp.arccos(jnp.tanh(x)) + jnp.arctanh(jnp.tanh(x) / 2),
    "hyperbolic": lambda x, **_: jnp.sinh(x) + jnp.cosh(x) + jnp.arcsinh(x) + jnp.arccosh(1 + x * x) + jnp.tanh(x),
    "atan2": lambda x, **_: jnp.arctan2(x, x[:, ::-1]),
    "activations": lambda x, **_: jnp.stack(
        [jax.nn.gelu(x, approximate=False), *(getattr(jax.nn, name)(x) for name in choices(LEAVES["activation"].type))]
    ),
    "softplus": lambda x, **_: jax.nn.softplus(4 * x) + jax.nn.log_sigmoid(x) + jax.nn.leaky_relu(x) + jax.nn.relu6(x),
    "erf": lambda x, **_: jax.scipy.special.erf(x) + jax.scipy.special.erfc(x),
    "powers": lambda x, **_: x**2 + x**3 + x**-1 + x**0 + jnp.abs(x) ** 0.3 + jnp.square(x) + 2.0**x,
    "remainder": lambda x, i, **_: (jnp.fmod(x, 0.7), jnp.fmod(i, 3), i // 3, i % 3, jax.lax.div(i, -2)),
    "comparisons": lambda x, i, **_: (x > 0, x < 0.5, x >= 0, x <= 0, i == 2, i != 2, jnp.isfinite(x / (x - x))),
    "logic": lambda x, flag, **_: (flag[:, None] & (x > 0), flag | (x[:, 0] > 0), flag ^ (x[:, 1] > 0), ~flag),
    "bits": lambda i, **_: (i & 5, i | 8, i ^ 3, ~i),
    "bounds": lambda x, flag, **_: (jnp.clip(x, -0.5, 0.5), jnp.maximum(x, 0), jnp.minimum(flag, x[:, 0] > 0)),
    "choices": lambda x, i, flag, **_: (jnp.where(flag[:, None], x, 2.0), jax.lax.select_n(i % 3, i, i + 10, i + 20)),
    "choice of flags": lambda x, flag, **_: jnp.where(flag, x[:, 0] > 0, x[:, 1] > 0),
    "identities": lambda x, i, **_: (
        *jax.lax.optimization_barrier((x, i)),
        jax.lax.optimization_barrier(x),
        *jnp.split(x, 1, axis=1),
    ),
    "types": lambda x, i, bytes, **_: (
        x.astype(jnp.int32),
        i.astype(float),
        (x > 0).astype(int),
        bytes.astype(jnp.int32),
        x.astype(bool),
    ),
    "bytes": lambda bytes, **_: (bytes // 2, jnp.minimum(bytes, 100), bytes > 7, (bytes * (1 / 255.0)).sum((1, 2, 3))),
    "sums": lambda x, i, **_: (x.sum(-1), x.mean(-1), i.sum(), x.prod(-1), x.max(-1), x.min(-1), x.std(-1)),
    "truths": lambda x, **_: ((x > 0).any(-1), (x > 0).all(-1), jnp.max(x > 0, -1), (x > 0).argmax(-1)),
    "arguments": lambda x, i, **_: (x.argmax(-1), x.argmin(-1)),
    "cumulative": lambda x, i, **_: (jnp.cumsum(x, -1), jax.lax.cumsum(i, reverse=True), jnp.cumsum(x > 0, -1)),
    "softmax": lambda x, **_: (jax.nn.softmax(x), jax.nn.log_softmax(x), jax.nn.logsumexp(x, -1)),
    "complex": lambda x, **_: (
        lambda z: (jnp.real(z * z / (z + 2)), jnp.imag(jnp.exp(z).conj()), jnp.abs(z), jnp.real(z.sum(-1)))
    )(jax.lax.complex(x, x[:, ::-1])),
}
STRUCTURE = {
    "shapes": lambda x, **_: (x.reshape(-1), x[:, None], x.T, x.reshape(-1, 2, 3).transpose(2, 0, 1), jnp.squeeze(x[:, :1], 1)),
    "slices": lambda x, **_: (x[:, 1:4], x[:, ::2], x[:, ::-1], x[::-1], x[:, -1], x[:, 4:0:-2]),
    "joins": lambda x, **_: (jnp.concatenate([x, x], 1), jnp.concatenate([x, x[:1]], 0), jnp.stack([x, -x], 1), jnp.tile(x, (1, 2))),
    "splits": lambda x, **_: (*jnp.split(x, [1, 4], -1), *jnp.unstack(x, axis=1)),
    "pads": lambda x, **_: (jnp.pad(x, ((0, 0), (1, 2)), constant_values=7), jax.lax.pad(x, 0.0, [(0, 0, 0), (-1, 2, 0)])),
    "ranges": lambda x, **_: (jnp.arange(len(x)), x + jnp.arange(K), jnp.zeros_like(x), jnp.broadcast_to(x[:, :1], (len(x), 4))),
    "one-hot": lambda i, **_: (jax.nn.one_hot(i, 5), jnp.eye(5)[i]),
    "products": lambda x, **_: (x[:, :4] @ TABLE, TABLE.T @ x[:, :4].T, jnp.einsum("ni,nj->nij", x, x), jnp.einsum("ni,ni->n", x, x)),
    "batched products": lambda x, **_: jnp.einsum("nthd,nkhd->nhtk", x.reshape(-1, 1, 2, 3), x.reshape(-1, 1, 2, 3)),
    "vmapped product": lambda x, **_: jax.vmap(lambda row: TABLE.T @ row[:4])(x),
    "convolutions": lambda image, **_: (
        jax.lax.conv_general_dilated(image, FILTERS, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        jax.lax.conv_general_dilated(image, FILTERS[:, :, :2], (1, 1), "VALID", rhs_dilation=(2, 1), feature_group_count=2,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC")),
        jax.lax.conv_general_dilated(image.transpose(0, 3, 1, 2), FILTERS.transpose(3, 2, 0, 1), (1, 1), "VALID"),
    ),
    "pools": lambda image, **_: (
        jax.lax.reduce_window(image, -jnp.inf, jax.lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"),
        jax.lax.reduce_window(image, 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        jax.lax.reduce_window(image.transpose(0, 3, 1, 2), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
    ),
}  # fmt: skip
INDEXING = {
    "rows of a table": lambda i, **_: (jnp.asarray(TABLE)[i % 4], jnp.asarray(TABLE)[:, i % 3], jnp.take(TABLE, i, axis=0)),
    "known places": lambda x, **_: x[:, np.array([0, 0, 3, 5])],
    "filled": lambda i, **_: jnp.asarray(TABLE).at[i].get(mode="fill", fill_value=-5.0),
    "clipped": lambda i, **_: jnp.asarray(TABLE).at[i].get(mode="clip"),
    "along an axis": lambda x, i, **_: jnp.take_along_axis(x, i[:, None] % K, axis=1),
    "own place": lambda x, i, **_: jax.vmap(lambda row, k: row[k])(x, i % K),
    "pairs": lambda x, i, **_: x[jnp.arange(len(x)), i % K],
    "dynamic": lambda x, i, **_: (jax.lax.dynamic_slice(x, (0, i[0]), (len(x), 2)), jax.vmap(lambda r, k: jax.lax.dynamic_slice(r, (k,), (2,)))(x, i)),
    "update": lambda x, i, **_: jax.lax.dynamic_update_slice(x, -x[:, :2], (0, i[0])),
    "set": lambda x, i, **_: (x.at[:, 2].set(0.0), jax.vmap(lambda r, k: r.at[k].set(9.0, mode="drop"))(x, i), x.at[0].set(1.0)),
    "scattered": lambda x, i, **_: (jnp.zeros(5).at[i % 5].add(x[:, 0]), jnp.ones(5).at[i % 5].mul(2.0), jnp.ones(5).at[i % 5].max(x[:, 0]), jnp.ones(5).at[i % 5].min(x[:, 0])),
    "dropped": lambda x, i, **_: jax.vmap(lambda r, k, z: r.at[k].set(z, mode="drop"))(x, jnp.stack([i, i + 1, i + 4], 1), x[:, :3]),
}  # fmt: skip
CONTROL = {
    "short loops": lambda x, **_: jax.lax.scan(lambda c, r: (c * 0.5 + r, c), x[:, 0], x.T),
    "loops backwards": lambda x, **_: jax.lax.scan(lambda c, r: (c * 0.5 + r, c), x[:, 0], x.T, reverse=True)[1],
    "known trips": lambda x, **_: jax.lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, x),
    "branches": lambda x, i, **_: jax.lax.cond(i[0] > 3, lambda x: x + 1, lambda x: -x, x),
    "switches": lambda x, i, **_: jax.lax.switch(i[0], [lambda x: x, lambda x: 2 * x, lambda x: -x], x),
    "calls": lambda x, **_: jax.checkpoint(jax.jit(lambda x: jax.nn.relu(x) + jax.lax.stop_gradient(x)))(x),
    "platforms": lambda x, **_: jax.lax.platform_dependent(x, cpu=lambda x: x + 1, default=lambda x: x + 2),
}


def layer(make):
    """A layer of Equinox with NumPy's numbers: fresh ones are compiled for seconds."""
    rng = np.random.default_rng(7)
    template = eqx.filter_eval_shape(lambda: make(key=jax.random.key(0)))
    return jax.tree.map(
        lambda x: jnp.asarray(rng.normal(size=x.shape) / 2, x.dtype) if eqx.is_array(x) or hasattr(x, "shape") else x, template
    )


MLP = layer(lambda key: eqx.nn.MLP(K, 3, 8, 2, key=key))
CELL = layer(lambda key: eqx.nn.GRUCell(K, K, key=key))
ATTENTION = layer(lambda key: eqx.nn.MultiheadAttention(2, 4, key=key))
CONVOLUTION = layer(lambda key: eqx.nn.Conv2d(4, 5, 3, padding=1, key=key))
EMBEDDING = layer(lambda key: eqx.nn.Embedding(9, 4, key=key))
LAYERS = {
    "MLP": lambda x, **_: jax.vmap(MLP)(x),
    "normalised": lambda x, **_: jax.vmap(eqx.nn.LayerNorm(K))(x),
    "recurrent": lambda x, **_: jax.vmap(CELL)(x, x),
    "attention": lambda x, **_: jax.vmap(lambda z: ATTENTION(z, z, z))(x[:, :, None] * jnp.ones(4)),
    "picture": lambda image, **_: jax.vmap(
        lambda z: eqx.nn.AvgPool2d(2)(eqx.nn.MaxPool2d(2, 2)(CONVOLUTION(z.transpose(2, 0, 1))))
    )(image),
    "embedded": lambda i, **_: jax.vmap(EMBEDDING)(jnp.abs(i) % 9),
}
"""A user's own network is made of such."""
ALL = {**ELEMENTWISE, **STRUCTURE, **INDEXING, **CONTROL, **LAYERS}
FILTERS = np.random.default_rng(6).normal(size=(3, 2, 4, 6)).astype(np.float32) / 4


def arrays(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.normal(size=(n, K)).astype(np.float32),
        "i": rng.integers(-2, 9, n).astype(np.int32),
        "episode_start": rng.random(n) < 0.5,
        "bytes": rng.integers(0, 256, (n, *IMAGE)).astype(np.uint8),
        "image": rng.normal(size=(n, *IMAGE)).astype(np.float32),
    }


def everything(x, i, episode_start, bytes, image):
    """All outputs, with their names."""
    given = {"x": x, "i": i, "flag": episode_start, "bytes": bytes, "image": image}
    found = {}
    for name, function in ALL.items():
        made = jax.tree.leaves(function(**given))
        found |= {f"{name} {k}": value for k, value in enumerate(made)}
    return found


def program(function, n=None):
    def traced(n):
        names = []

        def listed(*given):
            made = {**function(*given), "action": given[0]}  # which every policy has
            names[:] = made
            return list(made.values())

        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays(n).values()]
        return flat_jaxpr.trace(listed, *shapes), {k: (x.shape, str(x.dtype)) for k, x in arrays(n).items()}, names

    if n is not None:
        found, described, names = traced(n)
        return translate(found, described, names)
    (one, a, names), (other, b, _) = map(traced, sizes.TRACED)
    described = {k: (sizes.merged(a[k][0], b[k][0]), a[k][1]) for k in a}
    return translate(flat_jaxpr.merge(one, other), described, names)


@pytest.fixture(scope="module")
def whole():
    return program(everything)


def differences(found, expected):
    """Outputs that are not what was expected, with the size of the error."""
    wrong = {}
    for name, y in expected.items():
        x, y = np.asarray(found[name]), np.asarray(y)
        if x.shape != y.shape or x.dtype != y.dtype:
            wrong[name] = (x.shape, y.shape, x.dtype, y.dtype)
        elif not np.allclose(x, y, rtol=1e-5, atol=1e-5, equal_nan=True):
            wrong[name] = np.abs(x.astype(float) - y.astype(float)).max()
    return wrong


@functools.cache
def in_jax(n):
    return jax.jit(everything)(**arrays(n, seed=n))


@pytest.mark.parametrize("way", ["numpy", "onnx"])
def test_every_primitive_computes_what_jax_computes(whole, way, tmp_path):
    run = by_numpy(whole, tmp_path) if way == "numpy" else by_onnx(whole)
    for n in (3, 1):
        assert differences(run(arrays(n, seed=n)), in_jax(n)) == {}


def test_a_wrong_translation_is_detected(whole, tmp_path):
    assert len(differences(by_numpy(whole, tmp_path)(arrays(3, seed=2)), in_jax(3))) > len(ALL)


def test_every_translation_is_tested(monkeypatch):
    """Each rule is asked for by some function above."""
    asked = set()

    def noting(name, rule):
        return lambda b, e, *inputs: (asked.add(name), rule(b, e, *inputs))[1]

    for name, rule in RULES.items():
        monkeypatch.setitem(RULES, name, noting(name, rule))
    program(everything)
    spare = {
        "add_any",
        "copy",
        "copy_p",
        "stop_gradient",
        "tie",
        "expand_dims",
        "tile",
        "reduce_precision",
        "optimization_barrier",
    }
    other_names = {name for name in RULES if name.startswith("scatter_")} | {
        "stack",
        "unstack",
        "select_n",
        "reduce_or",
        "reduce_and",
    }
    assert set(RULES) - asked - spare - other_names == set()


def test_unknown_primitives_raise():
    def function(*given):
        return {"sorted": jnp.sort(given[0], -1), "cumulative": jax.lax.cummax(given[0], axis=1)}

    with pytest.raises(sizes.NotExportedError, match=r"it uses cummax, sort, which has no translation"):
        program(function)


def test_only_used_random_numbers_raise():
    key = jax.random.key(0)

    def function(x, *_):
        spare = jax.random.normal(key, x.shape)
        return {"y": x, "z": spare} if noisy else {"y": x}

    noisy = False
    assert program(function).outputs.keys() == {"y", "action"}
    noisy = True
    with pytest.raises(sizes.NotExportedError, match=r"it uses .*random_bits.*, which has no translation"):
        program(function)


def test_a_long_loop_raises():
    def function(x, *_):
        return {"y": jax.lax.fori_loop(0, 100, lambda i, c: c * 0.9, x)}

    with pytest.raises(sizes.NotExportedError, match="a loop of 100 iterations, and at most 64 are unrolled"):
        program(function)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda x, *_: {"y": x / float(len(x))}, "a constant in it depends on the number of environments"),
        (lambda x, *_: {"y": x if len(x) == 5 else -x}, "its operations depend on the number of environments"),
        (lambda x, *_: {"y": jnp.outer(x, x).reshape(-1)}, "square|multiple"),
    ],
    ids=["number", "operations", "square"],
)
def test_other_dependence_on_the_batch_size_needs_a_fixed_batch(function, why, tmp_path):
    with pytest.raises(sizes.BatchDependentError, match=why):
        program(function)
    given = arrays(3)
    expected = function(*given.values())
    assert differences(by_numpy(program(function, 3), tmp_path)(given), expected) == {}


def test_sizes_computed_by_numpy_are_merged(tmp_path):
    """What NumPy makes of the number of environments while it is traced."""

    def function(x, *_):
        return {"y": x + np.full((len(x), 1), 2.0, np.float32), "n": jnp.zeros(3, jnp.int32) + len(x)}

    given = arrays(4)
    assert differences(by_numpy(program(function), tmp_path)(given), function(*given.values())) == {}
