"""No test reaches another machine: the guard in ``tests/conftest.py`` refuses it, and fails the test that tried."""

import contextlib
import socket
import threading
import urllib.request

import pytest

from tests import network

OTHER = "203.0.113.7"
"""An address that belongs to nobody (RFC 5737)."""


@pytest.fixture
def attempts():
    """The refused addresses; those of this test are forgotten, so that it does not fail by them."""
    network.refused.clear()
    yield network.refused
    network.refused.clear()


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.create_connection((OTHER, 80), timeout=1),
        lambda: socket.socket().connect_ex((OTHER, 80)),
        lambda: socket.socket(socket.AF_INET6).connect(("2001:db8::1", 80)),
        lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (OTHER, 53)),
        lambda: socket.getaddrinfo("huggingface.co", 443),
        lambda: urllib.request.urlopen("https://huggingface.co", timeout=1),
    ],
    ids=["connection", "connect_ex", "IPv6", "datagram", "name", "library"],
)
def test_another_machine_is_refused(attempts, reach):
    with pytest.raises(OSError, match="tests use no network, but something asked for"):
        reach()
    assert len(attempts) == 1


def test_a_test_that_hides_the_error_fails(attempts):
    with contextlib.suppress(OSError):
        socket.getaddrinfo("huggingface.co", 443)
    with pytest.raises(pytest.fail.Exception, match=r"^tests use no network, but this one asked for huggingface\.co$"):
        network.fail_if_refused()
    network.fail_if_refused()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1", "0.0.0.0", b"localhost", None])
def test_this_machine_is_here(host):
    assert network.is_here(host)


def test_a_server_of_this_machine_is_reached(attempts):
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = threading.Thread(target=lambda: server.accept()[0].close())
        accepted.start()
        with socket.create_connection(server.getsockname(), timeout=5) as connection:
            assert connection.recv(1) == b""
        accepted.join()
    assert attempts == []
