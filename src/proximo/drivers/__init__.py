"""How a rollout is collected."""

from proximo.drivers.device import DeviceDriver, make_train
from proximo.drivers.functional import Functions, make_functions
from proximo.drivers.host import HostDriver

__all__ = ["DeviceDriver", "Functions", "HostDriver", "make_functions", "make_train"]
