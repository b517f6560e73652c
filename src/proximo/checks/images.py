"""Warns about images that make the network large: images of many pixels, and images that are not declared as uint8."""

from __future__ import annotations

from proximo.checks.finding import Finding, warning
from proximo.config import Config, NetworkConfig
from proximo.config.custom import is_custom
from proximo.envs.gymnasium.observations import leaves
from proximo.networks.encoders import NatureCNN, image_axes
from proximo.spaces import Box, Space

MAX_SIDE = 128
"""Largest height and width of an image in pixels without a warning. 64 to 84 pixels are usual."""
MAX_FIRST_LAYER = 1_000_000
"""Largest first layer of an MLP that reads an image without a warning, in parameters. A Nature CNN for 84×84 pixels has 1.7 million."""


def check_images(space: Space, config: Config) -> list[Finding]:
    """Warn about each size of images above ``MAX_SIDE``, and about images that an MLP reads. Custom encoders are not checked."""
    if is_custom(config.network.encoder) or is_custom(config.network.actor_critic):
        return []
    return [*_large(space), *_flattened(space, config.network)]


def has_image_shape(space: Space) -> bool:
    """Whether the shape of ``space`` is that of an image for Nature CNN, with three or four axes. The dtype is not checked."""
    if not isinstance(space, Box) or len(space.shape) not in (3, 4):
        return False
    height, width, *_, channels = (space.shape[axis] for axis in image_axes(space.shape))
    return min(height, width) >= max(NatureCNN.min_size, channels)


def first_layer_parameters(space: Space, network: NetworkConfig) -> int:
    """Parameters of the first layer of the MLPs that ``encoder = auto`` makes for an image that is not declared as uint8; 0 for any other
    space."""
    if not isinstance(space, Box) or space.dtype == "uint8" or network.encoder != "auto" or not has_image_shape(space):
        return 0
    towers = (network.hidden_sizes, network.for_critic.hidden_sizes)[: 2 if network.towers == "separate" else 1]
    return space.size * sum(sizes[0] for sizes in towers if sizes)


def _large(space: Space) -> list[Finding]:
    sizes = {
        tuple(leaf.shape[axis] for axis in image_axes(leaf.shape)[:2])
        for leaf in leaves(space)
        if isinstance(leaf.space, Box) and leaf.space.is_image
    }
    return [
        warning(
            "images",
            f"The encoder reads images of {height}×{width} pixels. More than {MAX_SIDE} pixels along a side make the network large and "
            "training slow: set preprocessing = atari for an Atari game, resize the images to about 84×84 "
            "(gymnasium.wrappers.ResizeObservation), or set a custom encoder.",
        )
        for height, width in sorted(sizes)
        if min(height, width) >= NatureCNN.min_size and max(height, width) > MAX_SIDE
    ]


def _flattened(space: Space, network: NetworkConfig) -> list[Finding]:
    counts = [(leaf, first_layer_parameters(leaf.space, network)) for leaf in leaves(space)]
    return [
        warning(
            "images",
            f"Observations{leaf.name} have the shape of an image, but are declared as {leaf.space}, so an MLP reads them. Its first layer "
            f"has {count / 1e6:.1f} million parameters. Return images as uint8 in 0 … 255, which Nature CNN reads and scales to 0 … 1"
            + (", or set encoder = nature_cnn if the numbers are in 0 … 1." if len(leaf.shape) == 3 else "."),
        )
        for leaf, count in counts
        if count > MAX_FIRST_LAYER
    ]
