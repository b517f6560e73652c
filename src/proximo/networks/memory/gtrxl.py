"""Gated Transformer-XL: attention over a sliding window of what each layer has read."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from proximo.networks.layers import Linear
from proximo.networks.memory.memory import MemoryCell

WIDEN = 2
GATE_BIAS = 2.0


class Window(eqx.Module):
    """The last ``M`` inputs of a layer, the newest last, and how many of them there are since the last reset."""

    inputs: Float[Array, "N M D"]
    length: Int[Array, " N"]


class GRUGate(eqx.Module):
    """``g(x, y) = (1 - z) x + z ĥ``: a GRU whose state is the stream ``x``. Its bias keeps it shut at the start, so that the
    policy begins without memory (Parisotto et al. 2019, section 3.2)."""

    from_y: Linear
    from_x: Linear
    candidate: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], size: int) -> GRUGate:
        """Orthogonal weights; ``b_g`` = 2."""
        keys = jax.random.split(key, 3)
        from_y, from_x = (Linear.create(k, size, n * size, gain=1.0) for k, n in zip(keys, (3, 2), strict=False))
        bias = from_y.bias.at[size : 2 * size].set(-GATE_BIAS)
        return cls(Linear(from_y.weight, bias), from_x, Linear.create(keys[2], size, size, gain=1.0))

    def __call__(self, x: Float[Array, "*rows D"], y: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        size = x.shape[-1]
        of_y, of_x = self.from_y(y), self.from_x(x)
        reset, update = jnp.split(jax.nn.sigmoid(of_y[..., : 2 * size] + of_x), 2, axis=-1)
        return x + update * (jnp.tanh(of_y[..., 2 * size :] + self.candidate(reset * x)) - x)


class IdentityGate(eqx.Module):
    """``g(x, y) = x + y``: identity-map reordering without a gate (GTrXL's TrXL-I)."""

    def __call__(self, x: Float[Array, "*rows D"], y: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
        return x + y


class GTrXL(MemoryCell):
    """One layer: ``y = g(x, relu(attention(norm(window), norm(x))))``, then ``g(y, relu(mlp(norm(y))))``.

    Attention reads this row and the ``M`` before it, of the same episode, and knows them by their distance; so no longest
    episode has to be known. Gradients end where the window does: within an unroll they flow through its own rows. Sources:
    Parisotto et al. 2019, arXiv:1910.06764, section 3; relative positions: Dai et al. 2019, arXiv:1901.02860, section 3.3.
    """

    embed: Linear | None
    """To D features, before the first layer."""
    query: Linear
    key_value: Linear
    distance: Linear
    content_bias: Float[Array, "heads d"]
    distance_bias: Float[Array, "heads d"]
    merge: Linear
    widen: Linear
    narrow: Linear
    gates: tuple[GRUGate | IdentityGate, GRUGate | IdentityGate]
    window: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], in_size: int, size: int, heads: int, window: int, gate: str) -> GTrXL:
        """``size`` features D in ``heads`` heads, ``window`` rows M; ``gate`` is "gru" or "identity"."""
        keys = jax.random.split(key, 9)

        def linear(k: Key[Array, ""], rows: int, columns: int) -> Linear:
            return Linear.create(k, rows, columns, gain=1.0)

        def make_gate(k: Key[Array, ""]) -> GRUGate | IdentityGate:
            return GRUGate.create(k, size) if gate == "gru" else IdentityGate()

        return cls(
            embed=None if in_size == size else linear(keys[0], in_size, size),
            query=linear(keys[1], size, size),
            key_value=linear(keys[2], size, 2 * size),
            distance=linear(keys[3], size, size),
            content_bias=jnp.zeros((heads, size // heads)),
            distance_bias=jnp.zeros((heads, size // heads)),
            merge=linear(keys[4], size, size),
            widen=linear(keys[5], size, WIDEN * size),
            narrow=linear(keys[6], WIDEN * size, size),
            gates=(make_gate(keys[7]), make_gate(keys[8])),
            window=window,
        )

    @property
    def size(self) -> int:
        """Features ``D``."""
        return self.query.weight.shape[0]

    def init(self, batch: int) -> Window:
        return Window(jnp.zeros((batch, self.window, self.size), self.query.weight.dtype), jnp.zeros(batch, jnp.int32))

    def step(self, state: Window, x: Array, first: Array, valid: Array) -> tuple[Window, Array]:
        state, y = self.unroll(state, x[None], first[None], valid[None])
        return state, y[0]

    def unroll(self, state: Window, x: Array, first: Array, valid: Array) -> tuple[Window, Array]:
        x = x if self.embed is None else self.embed(x)
        rows = jnp.swapaxes(x, 0, 1)
        inputs = jnp.concatenate([state.inputs, rows], axis=1)
        place = _Places.of(state, first.T, valid.T, self.window)
        y = self.gates[0](rows, jax.nn.relu(self._attention(rows, inputs, place)))
        out = self.gates[1](y, jax.nn.relu(self.narrow(jax.nn.relu(self.widen(_normalized(y))))))
        return place.after(inputs), jnp.swapaxes(out, 0, 1)

    def _attention(self, rows: Float[Array, "N T D"], inputs: Float[Array, "N K D"], place: _Places) -> Float[Array, "N T D"]:
        heads, depth = self.content_bias.shape

        def split(z: Float[Array, "*rows D"]) -> Float[Array, "*rows heads d"]:
            return z.reshape((*z.shape[:-1], heads, depth))

        query = split(self.query(_normalized(rows)))
        keys, values = (split(z) for z in jnp.split(self.key_value(_normalized(inputs)), 2, axis=-1))
        distances = split(self.distance(_sinusoids(self.window + 1, self.size).astype(rows.dtype)))
        by_content = jnp.einsum("nthd,nkhd->nhtk", query + self.content_bias, keys)
        by_distance = jnp.einsum("nthd,mhd->nhtm", query + self.distance_bias, distances)
        by_distance = jnp.take_along_axis(by_distance, place.distance[:, None], axis=-1)
        scores = jnp.where(place.seen[:, None], (by_content + by_distance) * depth**-0.5, -jnp.inf)
        read = jnp.einsum("nhtk,nkhd->nthd", jax.nn.softmax(scores, axis=-1), values)
        return self.merge(read.reshape(rows.shape))


class _Places(eqx.Module):
    """Who sees whom, and how far away: window and rows in one line, in which only valid rows count as places."""

    seen: Bool[Array, "N T K"]
    distance: Int[Array, "N T K"]
    slot: Int[Array, "N K"]
    """Where each stands in the window after the last row; the window's length where it has no place there."""
    length: Int[Array, " N"]
    window: int = eqx.field(static=True)

    @classmethod
    def of(cls, state: Window, first: Bool[Array, "N T"], valid: Bool[Array, "N T"], window: int) -> _Places:
        rows = first.shape[1]
        held = jnp.arange(window) >= window - state.length[:, None]
        there = jnp.concatenate([held, valid], axis=1)
        episode = jnp.pad(jnp.cumsum(first, axis=1), ((0, 0), (window, 0)))
        # A row that is not valid stands where the next one will.
        place = jnp.cumsum(there, axis=1) + ~there
        distance = place[:, window:, None] - place[:, None, :]
        itself = jnp.arange(window, window + rows)[:, None] == jnp.arange(window + rows)
        before = (distance > 0) & (distance <= window) & there[:, None, :]
        seen = itself | (before & (episode[:, window:, None] == episode[:, None, :]))
        remain = there & (episode == episode[:, -1:])
        behind = jnp.cumsum(remain[:, ::-1], axis=1)[:, ::-1]
        slot = jnp.where(remain & (behind <= window), window - behind, window)
        return cls(seen, jnp.clip(distance, 0, window), slot, jnp.minimum(behind[:, 0], window).astype(jnp.int32), window)

    def after(self, inputs: Float[Array, "N K D"]) -> Window:
        """The window after the last row."""
        empty = jnp.zeros((inputs.shape[0], self.window, inputs.shape[2]), inputs.dtype)
        filled = jax.vmap(lambda e, slot, x: e.at[slot].set(x, mode="drop"))(empty, self.slot, inputs)
        return Window(filled, self.length)


def _normalized(x: Float[Array, "*rows D"]) -> Float[Array, "*rows D"]:
    """Layer normalisation without gain and bias: a product follows."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + 1e-6)


def _sinusoids(count: int, size: int) -> Float[Array, "count size"]:
    """Sine and cosine of each distance, in waves from 2π to 20,000π rows long (Vaswani et al. 2017, section 3.5)."""
    half = -(-size // 2)
    angle = np.arange(count)[:, None] / 10_000 ** (np.arange(half) / half)
    return jnp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :size])
