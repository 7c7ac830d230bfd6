"""More than is allowed: processes, memory, files, output, time."""

from __future__ import annotations

from tests.reference.sandbox.attempt import Attempt

ATTEMPTS = (
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
