"""Ways to more rights."""

from tests.reference.sandbox.attempt import Attempt, lines

ATTEMPTS = (
    *lines(
        "no_new_privileges",
        user_of_root="for set in (os.setuid, os.seteuid):\n    attempt(lambda: set(0))",
        group_of_root="for set in (os.setgid, os.setegid):\n    attempt(lambda: set(0))",
        three_users_of_root="attempt(lambda: os.setresuid(0, 0, 0))",
        other_groups="attempt(lambda: os.setgroups([0]))",
        capabilities="libc = ctypes.CDLL(None)\n"
        "head = (ctypes.c_uint32 * 2)(0x20080522, 0)\n"
        "data = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)\n"
        "if libc.capset(head, data) == 0: escaped()",
        ambient_capabilities="if ctypes.CDLL(None).prctl(47, 2, 21, 0, 0) == 0: escaped()",
        secure_bits="if ctypes.CDLL(None).prctl(28, 1, 0, 0, 0) == 0: escaped()",
        takes_back_no_new_privileges="if ctypes.CDLL(None).prctl(38, 0, 0, 0, 0) == 0: escaped()",
        name_of_the_host="attempt(lambda: socket.sethostname('x'))",
        clock="attempt(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))",
        above_others="attempt(lambda: os.setpriority(0, 0, -20))",
        in_real_time="attempt(lambda: os.sched_setscheduler(0, 1, os.sched_param(1)))",
    ),
    *lines(
        "no_namespaces",
        namespaces_by_command="words = ['sh', '-c', 'unshare -Ur true']\n"
        "if subprocess.run(words, stderr=-3).returncode == 0: escaped()",
    ),
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
