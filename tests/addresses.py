"""Addresses for processes of a test."""

import socket


def free_address():
    """``HOST:PORT`` on loopback where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
