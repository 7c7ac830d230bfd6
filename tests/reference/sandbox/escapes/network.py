"""Ways to other hosts, and to sockets of this one."""

from __future__ import annotations

from tests.reference.sandbox.attempt import Attempt

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
