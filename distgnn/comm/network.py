"""Addresses and interfaces of this machine, by the standard library alone."""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFCONF = 0x8912
_IFREQ_BYTES = 40
_MAX_INTERFACES = 256


def addresses() -> list[tuple[str, str]]:
    """Return (interface, address) of every address of this machine, loopback included."""
    return _ipv4_addresses() + _ipv6_addresses()


def is_loopback(address: str) -> bool:
    """Whether an address can be reached from its own machine only.

    Args:
        address: An IPv4 or IPv6 address.
    """
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def loopback_interface() -> str:
    """Return the name of the loopback interface."""
    names = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    return names[0] if names else "lo"


def interface_towards(address: str) -> str:
    """Return the interface that packets to an address leave through.

    Args:
        address: An IPv4 or IPv6 address; one of this machine gives the interface that has it.

    Returns:
        The name; empty if the interface of the local address is not known.
    """
    local = address
    by_address = {found: name for name, found in addresses()}
    if local not in by_address:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # Connecting a datagram socket sends nothing: it only asks for the route.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            local = str(probe.getsockname()[0]).partition("%")[0]
    if local not in by_address and is_loopback(local):
        return loopback_interface()
    return by_address.get(local, "")


def _ipv4_addresses() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    table = bytearray(_IFREQ_BYTES * _MAX_INTERFACES)
    buffer = (ctypes.c_char * len(table)).from_buffer(table)
    request = struct.pack("iP", len(table), ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        reply = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, request)
    (used,) = struct.unpack_from("i", reply)
    for start in range(0, used, _IFREQ_BYTES):
        name = bytes(table[start : start + 16]).split(b"\0", 1)[0].decode()
        address = socket.inet_ntoa(bytes(table[start + 20 : start + 24]))
        found.append((name.partition(":")[0], address))
    return found


def _ipv6_addresses() -> list[tuple[str, str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found: list[tuple[str, str]] = []
    for line in lines:
        digits, *_, name = line.split()
        address = ipaddress.ip_address(bytes.fromhex(digits))
        if not address.is_link_local:  # those need a scope, which rank 0 cannot know
            found.append((name, str(address)))
    return found
