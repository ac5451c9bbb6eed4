"""What the servers share: finding a free port, and saying how to reach it."""

import errno
import getpass
import socket
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
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
                raise SystemExit(f"{host}:{number} cannot be opened ({why}); change --host or --port") from None
    if port is None:
        raise SystemExit(f"All ports from {first} to {first + PORTS_TRIED - 1} are taken; choose one with --port")
    raise SystemExit(f"Port {port} is taken; choose another with --port, or leave it out for the next free one")


def probe_port(host: str, port: int) -> int:
    """The port (for 0 a free one), after checking that a server could listen there."""
    with socket.create_server((host, port)) as listener:
        number: int = listener.getsockname()[1]
        return number


def reachable(host: str) -> str:
    """The address under which this machine reaches a server that listens on ``host``."""
    return LOOPBACK if host in ("", "0.0.0.0") else host


def announce(host: str, port: int) -> None:
    """Say how to reach the server from another machine, and how to end it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "USER"
    name = socket.gethostname()
    print(f"\nFrom another machine: ssh -L {port}:{reachable(host)}:{port} {user}@{name}")
    print("  and open the same address there.")
    if not reachable(host).startswith("127."):
        print("Everybody who can reach this machine can read what is served here.")
    elif reachable(host) != host:
        print(f"Everybody who can reach http://{name}:{port} can read what is served here.")
    print("Ctrl-C ends it.", flush=True)
