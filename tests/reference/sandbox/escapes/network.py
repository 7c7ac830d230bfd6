"""Ways to other hosts, and to sockets of this one."""

from tests.reference.sandbox.attempt import Attempt, lines

ATTEMPTS = (
    *lines(
        "no_network",
        tcp_of_version_6="attempt(socket.create_connection, ('::1', int(os.environ['PORT'])), 1)",
        tcp_to_another_host="attempt(socket.create_connection, ('198.51.100.1', 80), 0.2)",
        udp_to_another_host="other = ('198.51.100.1', 9)\n"
        "attempt(lambda: socket.socket(2, 2).sendto(b'x', other))",
        raw_packets="attempt(socket.socket, 2, 3, 1)",
        messages_to_the_host="attempt(lambda: socket.socket(2, 2).sendmsg(\n"
        "    [b'x'], [], 0, ('127.0.0.1', int(os.environ['PORT']))))",
        fast_open="attempt(lambda: socket.socket(2, 1).sendto(\n"
        "    b'x', 0x20000000, ('127.0.0.1', int(os.environ['PORT']))))",
        by_a_program="words = ['bash', '-c', 'echo > /dev/tcp/127.0.0.1/' + os.environ['PORT']]\n"
        "if subprocess.run(words, stderr=-3).returncode == 0: escaped()",
    ),
    *lines(
        "no_host_sockets",
        datagram_to_a_name="attempt(lambda: socket.socket(1, 2).sendto(b'x', outside + '/socket'))",
        datagram_to_an_abstract_name="attempt(lambda: socket.socket(1, 2)"
        ".sendto(b'x', '\\0' + marker))",
        pair_that_reconnects="one, _ = socket.socketpair(1, 2)\n"
        "attempt(lambda: one.connect(outside + '/socket'))\n"
        "attempt(lambda: one.sendto(b'x', '\\0' + marker))",
        sound_bus="attempt(lambda: socket.socket(1).connect('/run/dbus/system_bus_socket'))",
    ),
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
