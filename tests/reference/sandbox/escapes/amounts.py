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
_BOMBS: dict[str, dict[str, str]] = {
    "bounded_unmapped_memory": {
        "memory_of_pages_that_nobody_maps": """
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
        "memory_of_sockets": """
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
        "memory_of_pipes": """
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
        "memory_of_descriptors_in_flight": """
one, other = socket.socketpair()
one.setblocking(False)
try:
    for _ in range(100_000):
        socket.send_fds(one, [b"x"], [one.fileno()] * 8)
except OSError:
    pass
""",
    },
    "bounded_memory": {
        "shared_memory_that_is_mapped": """
import mmap
def fill():
    global held
    held = mmap.mmap(-1, 48 << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
"""
        + _MANY,
        "memory_by_threads": """
def hold():
    held = bytearray(b"x") * (20 << 20)
    time.sleep(2)
    escaped()
for _ in range(12):
    threading.Thread(target=hold, daemon=True).start()
time.sleep(2.5)
""",
        "a_list_that_grows": """
held = [0]
while True: held = held * 2
""",
        "a_text_that_grows": """
held = 'x'
while True: held += held
""",
        "a_stack_that_grows": """
threading.stack_size(1 << 26)
def deep(n):
    return deep(n + 1)
sys.setrecursionlimit(10 ** 8)
t = threading.Thread(target=deep, args=(0,))
t.start()
t.join()
""",
        "errors_without_end": """
block = b'x' * 65536
for _ in range(1600): os.write(2, block)
""",
        "arguments": "attempt(lambda: os.execv('/bin/true', ['true'] + ['x' * 100_000] * 1000))",
    },
    "no_new_privileges": {
        "a_power": "print(len(str(9 ** 9 ** 9)))",
        "a_regular_expression": """
import re
re.match('(a+)+$', 'a' * 40 + 'b')
""",
        "a_deep_recursion": """
sys.setrecursionlimit(10 ** 9)
def deep(): deep()
deep()
""",
        "signals_in_line": """
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
libc = ctypes.CDLL(None)
for _ in range(10 ** 5): libc.sigqueue(os.getpid(), 40, None)
""",
        "waiting_for_itself": "os.read(os.pipe()[0], 1)",
        "stopping_itself": "os.kill(os.getpid(), signal.SIGSTOP)",
        "many_timers": """
end = time.monotonic() + 1
held = [signal.setitimer(one, 1e-6, 1e-6) for one in (0, 1, 2)]
while time.monotonic() < end: pass
""",
    },
    "sized_scratch": {
        "a_zip_that_unfolds": """
import zlib
packed = zlib.compress(bytes(1 << 20))
with open('out', 'wb') as file:
    for _ in range(64): file.write(zlib.decompress(packed))
""",
        "hard_links": """
open('a', 'w').close()
try:
    for at in range(10 ** 6): os.link('a', f'l{at}')
except OSError: pass
""",
        "symbolic_links": """
try:
    for at in range(10 ** 6): os.symlink('x' * 4000, f'l{at}')
except OSError: pass
""",
        "folders_in_folders": """
try:
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
except OSError:
    pass
""",
        "files_that_are_deleted_but_open": """
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
        "room_that_is_reserved": """
file = os.open("f", os.O_CREAT | os.O_RDWR)
attempt(os.posix_fallocate, file, 0, 3 << 20)
""",
    },
    "read_only_system": {
        "shared_memory_folder": """
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
    },
    "bounded_processes": {
        "programs_that_start_programs": """
open("again.py", "w").write("import os, sys; os.fork(); os.execv(sys.executable, sys.orig_argv)")
os.execv(sys.executable, [sys.executable, "again.py"])
""",
        "zombies": """
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
    },
}
"""Programs by the guarantee that holds them."""
_ENDED = {
    "memory_of_pages_that_nobody_maps": ("memory",),
    "memory_of_sockets": ("memory",),
    "shared_memory_that_is_mapped": ("memory",),
    "waiting_for_itself": ("wall",),
    "stopping_itself": ("wall",),
}
"""How those end whose end is known."""

ATTEMPTS = (
    *(
        Attempt(name, needs, code, _ENDED.get(name, ANY), alone=True, slow=True)
        for needs, bombs in _BOMBS.items()
        for name, code in bombs.items()
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
