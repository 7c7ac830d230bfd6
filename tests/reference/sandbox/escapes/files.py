"""Ways to files outside, and odd files inside."""

from __future__ import annotations

from tests.reference.sandbox.attempt import Attempt

ATTEMPTS = (
    Attempt(
        "write_outside", "read_only_system", "attempt(lambda: open(outside + '/written', 'w'))"
    ),
    Attempt(
        "write_into_the_system",
        "read_only_system",
        "for folder in ('/usr', '/etc', '/dev', '/'):\n"
        "    attempt(lambda: open(folder + '/' + marker, 'w'))",
    ),
    Attempt(
        "change_of_mode_outside",
        "read_only_system",
        "attempt(os.chmod, outside + '/public', 0o777)",
    ),
    Attempt(
        "secret_of_mode_600", "hidden_files", "attempt(lambda: open(outside + '/secret').read())"
    ),
    Attempt(
        "secret_of_mode_644", "hidden_files", "attempt(lambda: open(outside + '/public').read())"
    ),
    Attempt("password_file", "hidden_files", "attempt(lambda: open('/etc/passwd').read())"),
    Attempt(
        "symlink_out",
        "hidden_files",
        "os.symlink(outside + '/public', 'link')\nattempt(lambda: open('link').read())",
    ),
    Attempt(
        "hard_link_out",
        "hidden_files",
        "attempt(os.link, outside + '/public', 'hard')\nattempt(lambda: open('hard').read())",
    ),
    Attempt(
        "open_files_of_the_caller",
        "no_new_privileges",
        """
for number in range(3, 256):
    attempt(lambda: os.fstat(number) and number)
""",
    ),
    Attempt(
        "devices",
        "no_new_privileges",
        """
import stat
for kind in (stat.S_IFBLK, stat.S_IFCHR):
    try:
        os.mknod("device", 0o666 | kind, os.makedev(254, 0))
        escaped("made")
    except OSError:
        pass
for path in ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/tty"):
    attempt(os.open, path, os.O_RDWR)
""",
    ),
    Attempt(
        "long_names_and_deep_folders",
        "no_new_privileges",
        """
for _ in range(40):
    os.mkdir("n" * 255)
    os.chdir("n" * 255)
""",
    ),
    Attempt(
        "odd_things_left_behind",
        "no_new_privileges",
        """
os.mkfifo("pipe")
os.mkdir("closed", 0)
open(b"\\xff\\xfe", "w")
os.symlink("loop", "loop")
""",
    ),
)
