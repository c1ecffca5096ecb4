"""A guard that refuses every connection of this process to another machine."""

import ipaddress
import socket

import pytest

refused: list[str] = []
"""The addresses that were refused since the list was emptied: a library may hide the error."""


def install() -> None:
    """Puts the guard in front of connections and of questions for addresses."""
    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
    ask = socket.getaddrinfo

    def getaddrinfo(host, *arguments, **more):
        _check(host)
        return ask(host, *arguments, **more)

    socket.getaddrinfo = getaddrinfo


def fail_if_refused() -> None:
    """Fails the present test if something asked for another machine, even where the error was hidden."""
    asked, refused[:] = ", ".join(refused), []
    if asked:
        pytest.fail(f"tests use no network, but this one asked for {asked}")


def _guarded(method):
    def guarded(self, *arguments):
        address = arguments[-1]
        # A connection of datagrams sends nothing; Ray asks by one which address this machine has.
        quiet = method.__name__ == "connect" and self.type == socket.SOCK_DGRAM
        if self.family in (socket.AF_INET, socket.AF_INET6) and not quiet:
            _check(address[0])
        return method(self, *arguments)

    return guarded


def _check(host: object) -> None:
    if not is_here(host):
        refused.append(str(host))
        raise OSError(f"tests use no network, but something asked for {host!r}")


def is_here(host: object) -> bool:
    """Whether a host is this machine."""
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified or str(address) in _own()


def _own() -> set[str]:
    """The addresses of this machine: that of its name, and that from which it would send."""
    found = set()
    try:
        found.add(socket.gethostbyname(socket.gethostname()))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
            outwards.connect(("192.0.2.1", 9))
            found.add(outwards.getsockname()[0])
    except OSError:
        pass
    return found
