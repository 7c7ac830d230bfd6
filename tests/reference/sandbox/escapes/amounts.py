"""More than is allowed: processes, memory, files, output, time."""

from tests.reference.sandbox.attempt import Attempt

ANY = ("exit", "signal", "cpu", "wall", "memory", "processes", "scratch")
_MANY = """
for _ in range(10):
    if os.fork() == 0:
        try:
            fill()
            os.nice(0)
            time.sleep(2)
            escaped("held")
        finally:
            os._exit(0)
time.sleep(2.5)
"""
"""Ten processes that each take some 50 MiB: four times what is allowed."""
_BOMBS = {
    "memory_of_pages_that_nobody_maps": (
        "bounded_unmapped_memory",
        """
import mmap
def fill():
    global held
    held = mmap.mmap(-1, 48 << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
        if at % (1 << 20) == 0:
            held.madvise(mmap.MADV_DONTNEED)
"""
        + _MANY,
        ("memory",),
    ),
    "memory_of_sockets": (
        "bounded_unmapped_memory",
        """
def fill():
    global held
    held = [one for _ in range(110) for one in socket.socketpair()]
    for one in held:
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        try:
            while True:
                one.send(bytes(65536))
        except BlockingIOError:
            pass
"""
        + _MANY,
        ("memory",),
    ),
    "memory_of_pipes": (
        "bounded_unmapped_memory",
        """
def fill():
    global held
    held = [os.pipe() for _ in range(110)]
    for _, end in held:
        os.set_blocking(end, False)
        try:
            while True:
                os.write(end, bytes(65536))
        except BlockingIOError:
            pass
fill()
""",
        ANY,
    ),
    "memory_of_descriptors_in_flight": (
        "bounded_unmapped_memory",
        """
one, other = socket.socketpair()
one.setblocking(False)
try:
    for _ in range(100_000):
        socket.send_fds(one, [b"x"], [one.fileno()] * 8)
except OSError:
    pass
""",
        ANY,
    ),
    "shared_memory_that_is_mapped": (
        "bounded_memory",
        """
import mmap
def fill():
    global held
    held = mmap.mmap(-1, 48 << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
"""
        + _MANY,
        ("memory",),
    ),
    "memory_by_threads": (
        "bounded_memory",
        """
def hold():
    held = bytearray(b"x") * (20 << 20)
    time.sleep(2)
    escaped()
for _ in range(12):
    threading.Thread(target=hold, daemon=True).start()
time.sleep(2.5)
""",
        ANY,
    ),
    "a_list_that_grows": ("bounded_memory", "held = [0]\nwhile True: held = held * 2", ANY),
    "a_text_that_grows": ("bounded_memory", "held = 'x'\nwhile True: held += held", ANY),
    "a_power": ("no_new_privileges", "print(len(str(9 ** 9 ** 9)))", ANY),
    "a_regular_expression": (
        "no_new_privileges",
        "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
        ANY,
    ),
    "a_deep_recursion": (
        "no_new_privileges",
        "sys.setrecursionlimit(10 ** 9)\ndef deep(): deep()\ndeep()",
        ANY,
    ),
    "a_stack_that_grows": (
        "bounded_memory",
        (
            "threading.stack_size(1 << 26)\n"
            "def deep(n):\n    return deep(n + 1)\n"
            "sys.setrecursionlimit(10 ** 8)\n"
            "t = threading.Thread(target=deep, args=(0,))\nt.start()\nt.join()"
        ),
        ANY,
    ),
    "a_zip_that_unfolds": (
        "sized_scratch",
        (
            "import zlib\npacked = zlib.compress(bytes(1 << 20))\n"
            "with open('out', 'wb') as file:\n"
            "    for _ in range(64): file.write(zlib.decompress(packed))"
        ),
        ANY,
    ),
    "hard_links": (
        "sized_scratch",
        (
            "open('a', 'w').close()\n"
            "try:\n    for at in range(10 ** 6): os.link('a', f'l{at}')\n"
            "except OSError: pass"
        ),
        ANY,
    ),
    "symbolic_links": (
        "sized_scratch",
        (
            "try:\n    for at in range(10 ** 6): os.symlink('x' * 4000, f'l{at}')\n"
            "except OSError: pass"
        ),
        ANY,
    ),
    "folders_in_folders": (
        "sized_scratch",
        """
try:
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
except OSError:
    pass
""",
        ANY,
    ),
    "files_that_are_deleted_but_open": (
        "sized_scratch",
        """
held = []
try:
    for at in range(200):
        held.append(open("f", "wb", buffering=0))
        os.unlink("f")
        held[-1].write(bytes(1 << 18))
    escaped("written")
except OSError:
    pass
""",
        ANY,
    ),
    "room_that_is_reserved": (
        "sized_scratch",
        "attempt(os.posix_fallocate, os.open('f', os.O_CREAT | os.O_RDWR), 0, 3 << 20)",
        ANY,
    ),
    "shared_memory_folder": (
        "read_only_system",
        """
total = 0
try:
    for at in range(16):
        with open(f"/dev/shm/f{at}", "wb", buffering=0) as file:
            total += file.write(bytes(1 << 20))
except OSError:
    pass
if total > 2 << 20:
    escaped(total)
""",
        ANY,
    ),
    "errors_without_end": (
        "bounded_memory",
        "block = b'x' * 65536\nfor _ in range(1600): os.write(2, block)",
        ANY,
    ),
    "programs_that_start_programs": (
        "bounded_processes",
        """
open("again.py", "w").write("import os, sys; os.fork(); os.execv(sys.executable, sys.orig_argv)")
os.execv(sys.executable, [sys.executable, "again.py"])
""",
        ANY,
    ),
    "zombies": (
        "bounded_processes",
        """
made = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            os._exit(0)
        made += 1
except OSError:
    pass
if made > 400:
    escaped(made)
""",
        ANY,
    ),
    "arguments": (
        "bounded_memory",
        "attempt(lambda: os.execv('/bin/true', ['true'] + ['x' * 100_000] * 1000))",
        ANY,
    ),
    "signals_in_line": (
        "no_new_privileges",
        (
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n"
            "libc = ctypes.CDLL(None)\n"
            "for _ in range(10 ** 5): libc.sigqueue(os.getpid(), 40, None)"
        ),
        ANY,
    ),
    "waiting_for_itself": ("no_new_privileges", "os.read(os.pipe()[0], 1)", ("wall",)),
    "stopping_itself": (
        "no_new_privileges",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        ("wall",),
    ),
    "many_timers": (
        "no_new_privileges",
        (
            "end = time.monotonic() + 1\n"
            "held = [signal.setitimer(one, 1e-6, 1e-6) for one in (0, 1, 2)]\n"
            "while time.monotonic() < end: pass"
        ),
        ANY,
    ),
}

ATTEMPTS = (
    *(
        Attempt(name, needs, code, ended, alone=True, slow=True)
        for name, (needs, code, ended) in _BOMBS.items()
    ),
    Attempt(
        "fork_bomb",
        "bounded_processes",
        """
end = time.monotonic() + 0.7
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        pass
""",
        ("exit", "cpu", "wall", "processes", "memory"),
        alone=True,
        limits={"cpu": 0.4},
    ),
    Attempt(
        "thread_bomb",
        "bounded_processes",
        """
started = 0
threading.stack_size(65536)
try:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
if started > 100:
    escaped(started)
os._exit(0)
""",
        ("exit", "processes"),
        alone=True,
    ),
    Attempt(
        "memory_bomb",
        "bounded_memory",
        "attempt(lambda: len(bytearray(1 << 30)))",
        ("exit", "memory"),
        alone=True,
    ),
    Attempt(
        "memory_bomb_of_many",
        "bounded_memory",
        """
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(b"x") * (60 << 20)
        time.sleep(2)
        escaped()
        os._exit(0)
time.sleep(3)
""",
        ("memory",),
        alone=True,
    ),
    Attempt(
        "disk_fill",
        "sized_scratch",
        """
total = 0
try:
    for at in range(64):
        with open(f"fill{at % 20}", "ab", buffering=0) as file:
            total += file.write(bytes(1 << 18))
except OSError:
    pass
if total > 2 << 20:
    escaped(total)
""",
        ("exit", "scratch"),
        alone=True,
    ),
    Attempt(
        "inode_fill",
        "sized_scratch",
        """
made = 0
try:
    for at in range(300_000):
        os.mkdir(f"d{at}")
        made += 1
except OSError:
    pass
if made > 200_000:
    escaped(made)
""",
        ("exit", "scratch"),
        alone=True,
    ),
    Attempt(
        "one_huge_file",
        "bounded_memory",
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
attempt(os.truncate, os.open("sparse", os.O_CREAT | os.O_RDWR), 1 << 40)
""",
    ),
    Attempt(
        "huge_output",
        "bounded_memory",
        """
block = b"x" * 65536
for _ in range(1600):
    os.write(1, block)
""",
        alone=True,
    ),
    Attempt(
        "endless_loop_that_ignores_signals",
        "no_new_privileges",
        """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
""",
        ("cpu",),
        alone=True,
        limits={"cpu": 0.4},
    ),
    Attempt(
        "sleep_that_never_ends",
        "no_new_privileges",
        "time.sleep(60)\nescaped()",
        ("wall",),
        alone=True,
        limits={"wall": 1.0},
    ),
)
