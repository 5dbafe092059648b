"""Which addresses of the network anybody may be sent to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# IPv6 addresses that carry an IPv4 address in their last 32 bits, as a gateway reads them.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
_LOCAL_TRANSLATED = ipaddress.IPv6Network("64:ff9b:1::/48")


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet, in every reading of it."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = _find_inner(address)
        if address in _LOCAL_TRANSLATED or any(not is_public(found) for found in inner):
            return False
        if inner:
            return True
    return address.is_global and not address.is_multicast and not address.is_reserved


async def resolve_host(host: str, port: int) -> list[Address]:
    """Return the addresses of a host, in the order of preference; OSError without any."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def _find_inner(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _TRANSLATED):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [found for found in inner if found is not None]
