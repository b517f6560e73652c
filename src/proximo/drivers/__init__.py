"""How a rollout is collected."""

from proximo.drivers.device import DeviceDriver, make_train

__all__ = ["DeviceDriver", "make_train"]
