"""What the servers share: finding a free port, and saying how to reach it."""

import errno
import getpass
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
EVERYWHERE = {"": LOOPBACK, "0.0.0.0": LOOPBACK, "::": "::1"}  # and how this machine reaches a server there
PORTS_TRIED = 100


def take_port(take: Callable[[int], T], host: str, port: int | None, first: int) -> T:
    """``take(port)``, or ``take`` of the first free port from ``first`` on; exits with a sentence if there is none.

    ``take`` raises an ``OSError`` for a port it cannot have.
    """
    for number in range(first, first + PORTS_TRIED) if port is None else (port,):
        try:
            return take(number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                why = error.strerror or error
                where = address(host, number)
                raise SystemExit(f"{where} cannot be opened ({why}); change --host or --port") from None
    if port is None:
        raise SystemExit(f"All ports from {first} to {first + PORTS_TRIED - 1} are taken; choose one with --port")
    raise SystemExit(f"Port {port} is taken; choose another with --port, or leave it out for the next free one")


def probe_port(host: str, port: int) -> int:
    """The port (for 0 a free one), after checking that a server could listen there."""
    with socket.create_server((host, port), family=family(host)) as listener:
        number: int = listener.getsockname()[1]
        return number


def family(host: str) -> socket.AddressFamily:
    """Which version of the Internet Protocol ``host`` belongs to."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def reachable(host: str) -> str:
    """The name or number under which this machine reaches a server that listens on ``host``."""
    return EVERYWHERE.get(host, host)


def address(host: str, port: int) -> str:
    """Host and port as they are written in a URL, and for ``ssh -L``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_own(name: str | None, host: str) -> bool:
    """Whether a request's header ``Host`` names the server that listens on ``host``.

    A page of another site can let its name point to this machine (DNS rebinding); its script could then read what is
    served. So only loopback names and ``host`` count and, for a server that listens everywhere, all numbers and this
    machine's names: nobody else can let these point elsewhere.
    """
    try:
        asked = urlsplit(f"//{name or ''}").hostname or ""
    except ValueError:
        return False
    if _is_loopback(asked):
        return True
    if host not in EVERYWHERE:
        return asked == host.lower()
    return _number(asked) is not None or asked in (socket.gethostname().lower(), socket.getfqdn().lower())


def _is_loopback(host: str) -> bool:
    number = _number(host)
    return host == "localhost" or (number is not None and number.is_loopback)


def _number(host: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(host)
    return None


def announce(host: str, port: int) -> None:
    """Say how to reach the server from another machine, and how to end it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "USER"
    name = socket.gethostname()
    print(f"\nFrom another machine: ssh -L {port}:{address(reachable(host), port)} {user}@{name}")
    print("  and open the same address there.")
    if not _is_loopback(reachable(host)):
        print("Everybody who can reach this machine can read what is served here.")
    elif reachable(host) != host:
        print(f"Everybody who can reach http://{name}:{port} can read what is served here.")
    print("Ctrl-C ends it.", flush=True)
