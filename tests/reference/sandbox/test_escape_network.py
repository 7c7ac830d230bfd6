"""Ways to other hosts, and to sockets of this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from reference.sandbox.isolation import Isolation
from reference.sandbox.limits import Limits
from tests.reference.sandbox.attempt import Attempt, apart, check_apart, check_together

ATTEMPTS = (
    Attempt(
        "tcp_to_the_host",
        "no_network",
        "attempt(socket.create_connection, ('127.0.0.1', int(os.environ['PORT'])), 1)",
    ),
    Attempt(
        "udp_to_the_host",
        "no_network",
        """
def send():
    host = ("127.0.0.1", int(os.environ["PORT"]))
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", host)
try:
    send()
except OSError:
    pass
""",
    ),
    Attempt("dns", "no_network", "attempt(socket.getaddrinfo, 'example.org', 80)"),
    Attempt(
        "unix_socket_of_the_host",
        "no_host_sockets",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect(outside + '/socket'))",
    ),
    Attempt(
        "abstract_unix_socket_of_the_host",
        "no_host_sockets",
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + marker))",
    ),
)


@pytest.mark.parametrize("attempt", apart(ATTEMPTS))
def test_an_attempt_fails(
    attempt: Attempt,
    isolation: Isolation,
    limits: Limits,
    outside: Path,
    request: pytest.FixtureRequest,
) -> None:
    check_apart(attempt, isolation, limits, outside, request)


def test_attempts_that_share_a_run_fail(
    isolation: Isolation, limits: Limits, outside: Path
) -> None:
    check_together(ATTEMPTS, isolation, limits, outside)
