"""Ways to more rights."""

from __future__ import annotations

from tests.reference.sandbox.attempt import Attempt

ATTEMPTS = (
    Attempt(
        "set_user_id_program",
        "no_new_privileges",
        """
try:
    found = subprocess.run([outside + "/id", "-u"], capture_output=True, text=True).stdout
except OSError:
    found = ""
if found.strip() == "0":
    escaped("as root")
status = "/proc/self/status"
if os.path.exists(status) and "NoNewPrivs:\\t1" not in open(status).read():
    escaped("may gain")
attempt(lambda: os.setuid(0) or "root")
""",
    ),
    Attempt(
        "mount_and_chroot",
        "no_new_privileges",
        """
libc = ctypes.CDLL(None)
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"") == 0:
    escaped("mount")
attempt(lambda: os.chroot("."))
""",
    ),
    Attempt(
        "own_user_namespace",
        "no_namespaces",
        """
libc = ctypes.CDLL(None)
if libc.unshare(0x10000000) == 0:
    escaped("unshare")
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
pid = libc.syscall(number, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0:
    os._exit(0)
if pid > 0:
    escaped("clone")
""",
    ),
    Attempt(
        "core_dump",
        "no_new_privileges",
        """
import resource
try:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    escaped("limit")
except ValueError:
    os.abort()
""",
        ("signal",),
        alone=True,
    ),
    Attempt(
        "raising_its_own_limits",
        "no_new_privileges",
        """
import resource
for name in ("AS", "NPROC", "CPU", "FSIZE", "NOFILE"):
    kind = getattr(resource, "RLIMIT_" + name)
    try:
        resource.setrlimit(kind, (resource.RLIM_INFINITY,) * 2)
        escaped(name)
    except ValueError:
        pass
""",
    ),
)
