"""Which callers count as one."""

from __future__ import annotations

import ipaddress

__all__ = ["network_of"]


def network_of(address: str) -> str:
    """Return the unit that counts as one address: for IPv6 the /64 network, because one host may use all of it. A text
    that is no address is its own unit.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
