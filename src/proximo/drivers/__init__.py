"""How a rollout is collected."""

from proximo.drivers.device import DeviceDriver, make_train
from proximo.drivers.host import HostDriver

__all__ = ["DeviceDriver", "HostDriver", "make_train"]
