"""Ways to other processes, and beyond the end of the run."""

from tests.reference.sandbox.attempt import SLEEPER, Attempt, lines

_OTHERS = "import resource\nfor pid in (1, os.getppid()):\n    "
ATTEMPTS = (
    *lines(
        "own_processes",
        memory_of_the_first=_OTHERS + "attempt(lambda: open(f'/proc/{1}/mem', 'rb').read(1))",
        signal_by_thread="libc = ctypes.CDLL(None)\n"
        "if libc.tgkill(1, 1, 9) == 0 and not os.path.exists('/proc/1'): escaped()",
    ),
    Attempt(
        "priority_and_limits_of_the_parent",
        "own_processes",
        _OTHERS + "attempt(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (9, 9)))\n    "
        "attempt(lambda: os.setpriority(0, pid, 19))\n    "
        "attempt(lambda: os.sched_setaffinity(pid, {0}))",
        alone=True,
        slow=True,
    ),
    Attempt(
        "signal_by_a_handle",
        "own_processes",
        _OTHERS + "attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 9))",
        alone=True,
        slow=True,
    ),
    Attempt(
        "adoption_of_orphans",
        "nothing_outlives",
        f"""
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, {SLEEPER})
        os._exit(0)
""",
    ),
    Attempt(
        "stopped_child",
        "nothing_outlives",
        f"""
child = subprocess.Popen({SLEEPER})
os.kill(child.pid, signal.SIGSTOP)
""",
    ),
    Attempt(
        "daemon",
        "nothing_outlives",
        f"""
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        os.execv(sys.executable, {SLEEPER})
    os._exit(0)
time.sleep(0.2)
""",
    ),
    Attempt(
        "many_daemons",
        "nothing_outlives",
        f"for _ in range(4): subprocess.Popen({SLEEPER}, start_new_session=True, close_fds=True)",
    ),
    Attempt(
        "killing_the_parent",
        "own_processes",
        "signal.signal(15, signal.SIG_IGN)\n"
        "for pid in (1, os.getppid()):\n    attempt(lambda: os.kill(pid, 9)) if pid else None\n"
        "for number in (2, 1, 15):\n    try: os.kill(os.getppid(), number)\n"
        "    except OSError: pass\n"
        "time.sleep(0.1)\nprint('alive')",
        alone=True,
    ),
    Attempt("killing_everyone", "own_processes", "os.kill(-1, 9)", ("exit", "signal"), alone=True),
    Attempt("signal_to_the_group", "own_processes", "os.killpg(0, 9)", ("signal",), alone=True),
    Attempt(
        "trace_of_the_parent",
        "own_processes",
        """
ctypes.CDLL(None).ptrace.argtypes = [ctypes.c_long] * 4
if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0:
    escaped("ptrace")
attempt(os.open, f"/proc/{os.getppid()}/mem", os.O_RDWR)
""",
        alone=True,  # sharing a run, its parent would be no supervisor
    ),
    Attempt(
        "environment_of_others",
        "own_processes",
        """
for name in os.listdir("/proc") if os.access("/proc", os.R_OK) else []:
    if name.isdigit() and int(name) != os.getpid():
        try:
            if b"HIDDEN" in open(f"/proc/{name}/environ", "rb").read():
                escaped(name)
        except OSError:
            pass
""",
    ),
    Attempt(
        "sight_of_others",
        "hidden_processes",
        """
for name in os.listdir("/proc") if os.access("/proc", os.R_OK) else []:
    try:
        if b"sleep\\x0077" in open(f"/proc/{name}/cmdline", "rb").read():
            escaped(name)
    except OSError:
        pass
""",
    ),
)
