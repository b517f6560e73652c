"""Gated Transformer-XL: attention over a sliding window of the inputs of each layer."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from proximo.config import NetworkConfig
from proximo.networks.layers import Linear
from proximo.networks.recurrent.protocol import MemoryCell

WIDEN = 2
"""Width of the hidden layer of the MLP, in multiples of D."""
GATE_BIAS = 2.0
Features = Float[Array, "*batch D"]


class Window(eqx.Module):
    """The state: the last ``M`` inputs of the layer, the newest last, and how many are of the current episode."""

    inputs: Float[Array, "N M D"]
    length: Int[Array, " N"]


class GRUGate(eqx.Module):
    """``g(x, y) = (1 - z) x + z ĥ``: a GRU whose state is the residual stream ``x``. Its bias ``b_g`` closes
    it at the start: the policy begins without a memory (Parisotto et al. 2019, "Gating layers")."""

    from_y: Linear
    from_x: Linear
    candidate: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], size: int) -> "GRUGate":
        """Orthogonal weights; ``b_g`` is ``GATE_BIAS``."""
        keys = jax.random.split(key, 3)
        from_y, from_x, candidate = (Linear.create(k, size, n * size, gain=1.0) for k, n in zip(keys, (3, 2, 1), strict=True))
        return cls(Linear(from_y.weight, from_y.bias.at[size : 2 * size].set(-GATE_BIAS)), from_x, candidate)

    def __call__(self, x: Features, y: Features) -> Features:
        size = x.shape[-1]
        of_y, of_x = self.from_y(y), self.from_x(x)
        reset, update = jnp.split(jax.nn.sigmoid(of_y[..., : 2 * size] + of_x), 2, axis=-1)
        return x + update * (jnp.tanh(of_y[..., 2 * size :] + self.candidate(reset * x)) - x)


class GTrXL(MemoryCell):
    """One layer: ``y = g(x, relu(attention(norm(window), norm(x))))``, then ``g(y, relu(mlp(norm(y))))``.

    Attention reads the current step and the ``M`` steps before it in the same episode. Positions are relative
    (the distance in steps), so episodes may have any length. Gradients flow through the steps of one unroll;
    the window before it is constant. Without gates, ``g(x, y) = x + y`` ("Identity map reordering").

    Sources: Parisotto et al. 2019, arXiv:1910.06764, section 3; for the relative positions Dai et al. 2019,
    arXiv:1901.02860, section 3.3.
    """

    embed: Linear | None
    """Projects the inputs to D features; None if they have D already."""
    query: Linear
    key_value: Linear
    distance: Linear
    content_bias: Float[Array, "heads d"]
    distance_bias: Float[Array, "heads d"]
    merge: Linear
    widen: Linear
    narrow: Linear
    gates: tuple[GRUGate, ...]
    """Two, or none."""
    window: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, config: NetworkConfig) -> "GTrXL":
        """A layer for ``in_size`` features, with orthogonal weights."""
        size, settings = config.memory_size, config.memory_settings
        keys, linear = jax.random.split(key, 9), partial(Linear.create, gain=1.0)
        content_bias, distance_bias = jnp.zeros((2, settings.heads, size // settings.heads))
        return cls(
            embed=None if in_size == size else linear(keys[0], in_size, size),
            query=linear(keys[1], size, size),
            key_value=linear(keys[2], size, 2 * size),
            distance=linear(keys[3], size, size),
            content_bias=content_bias,
            distance_bias=distance_bias,
            merge=linear(keys[4], size, size),
            widen=linear(keys[5], size, WIDEN * size),
            narrow=linear(keys[6], WIDEN * size, size),
            gates=tuple(GRUGate.create(k, size) for k in keys[7:]) if settings.gate == "gru" else (),
            window=settings.window,
        )

    @property
    def size(self) -> int:
        """Number of features ``D``."""
        return self.query.weight.shape[0]

    def init(self, batch: int) -> Window:
        return Window(jnp.zeros((batch, self.window, self.size), self.query.weight.dtype), jnp.zeros(batch, jnp.int32))

    def step(self, state: Window, x: Array, *flags: Array) -> tuple[Window, Array]:
        state, y = self.unroll(state, x[None], *(flag[None] for flag in flags))
        return state, y[0]

    def unroll(self, state: Window, x: Array, episode_start: Array, valid: Array) -> tuple[Window, Array]:
        x = jnp.swapaxes(x if self.embed is None else self.embed(x), 0, 1)
        inputs = jnp.concatenate([state.inputs, x], axis=1)
        visible, distance, slot, length = _positions(state, episode_start.T, valid.T)
        out = self.outputs(x, inputs, visible, distance)
        empty = jnp.zeros_like(state.inputs, inputs.dtype)
        window = jax.vmap(lambda e, slot, x: e.at[slot].set(x, mode="drop"))(empty, slot, inputs)
        return Window(window, length), jnp.swapaxes(out, 0, 1)

    def outputs(
        self, x: Float[Array, "N T D"], inputs: Float[Array, "N K D"], visible: Bool[Array, "N T K"], distance: Array | None
    ) -> Float[Array, "N T D"]:
        """The outputs of the steps ``x``, which attend to the ``visible`` ones of ``inputs``.
        ``distance`` is ``[N, T, K]``; None if input ``k`` has the distance ``K - 1 - k``."""
        heads, depth = self.content_bias.shape

        def split(z):
            return z.reshape((*z.shape[:-1], heads, depth))

        query = split(self.query(_normalized(x)))
        keys, values = (split(z) for z in jnp.split(self.key_value(_normalized(inputs)), 2, axis=-1))
        distances = split(self.distance(_sinusoids(self.window + 1, self.size).astype(x.dtype)))
        by_content = jnp.einsum("nthd,nkhd->nhtk", query + self.content_bias, keys)
        by_distance = jnp.einsum("nthd,mhd->nhtm", query + self.distance_bias, distances)
        by_distance = by_distance[..., ::-1] if distance is None else jnp.take_along_axis(by_distance, distance[:, None], axis=-1)
        scores = jnp.where(visible[:, None], (by_content + by_distance) * depth**-0.5, -jnp.inf)
        read = jnp.einsum("nhtk,nkhd->nthd", jax.nn.softmax(scores, axis=-1), values)
        attention, mlp = self.gates or (jnp.add, jnp.add)
        y = attention(x, jax.nn.relu(self.merge(read.reshape(x.shape))))
        return mlp(y, jax.nn.relu(self.narrow(jax.nn.relu(self.widen(_normalized(y))))))


def _positions(state: Window, episode_start: Bool[Array, "N T"], valid: Bool[Array, "N T"]) -> tuple[Array, ...]:
    """Of ``T`` steps and ``K = M + T`` inputs (the window, then the steps): ``[N, T, K]`` whether a step
    attends to an input, and their distance in valid steps; ``[N, K]`` the index of each input in the next
    window, ``M`` if it is dropped; and ``[N]`` the number of inputs in the next window."""
    window, steps = state.inputs.shape[1], episode_start.shape[1]
    filled = jnp.arange(window) >= window - state.length[:, None]
    present = jnp.concatenate([filled, valid], axis=1)
    episode = jnp.pad(jnp.cumsum(episode_start, axis=1), ((0, 0), (window, 0)))
    # A padding step takes the position of the next valid step.
    position = jnp.cumsum(present, axis=1) + ~present
    distance = position[:, window:, None] - position[:, None, :]
    itself = jnp.arange(window, window + steps)[:, None] == jnp.arange(window + steps)
    earlier = (distance > 0) & (distance <= window) & present[:, None, :]
    visible = itself | (earlier & (episode[:, window:, None] == episode[:, None, :]))
    remains = present & (episode == episode[:, -1:])
    age = jnp.cumsum(remains[:, ::-1], axis=1)[:, ::-1]  # 1 for the newest
    slot = jnp.where(remains & (age <= window), window - age, window)
    return visible, jnp.clip(distance, 0, window), slot, jnp.minimum(age[:, 0], window).astype(jnp.int32)


def _normalized(x: Features) -> Features:
    """Layer normalization, without gain and bias because a product follows."""
    centered = x - jnp.mean(x, axis=-1, keepdims=True)
    return centered * jax.lax.rsqrt(jnp.mean(jnp.square(centered), axis=-1, keepdims=True) + 1e-6)


def _sinusoids(count: int, size: int) -> Float[Array, "count size"]:
    """Sine and cosine of the distances from 0 on (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""
    half = -(-size // 2)
    angle = np.arange(count)[:, None] / 10_000 ** (np.arange(half) / half)
    return jnp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :size])
