"""System calls beyond the list, each with zeros for arguments, and other ways to make a call."""

from tests.reference.sandbox.attempt import Attempt

_NUMBERS = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "remap_file_pages": (216, 234),
    "vmsplice": (278, 75),
    "io_setup": (206, 0),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "mbind": (237, 235),
    "move_pages": (279, 239),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "sync": (162, 81),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone3": (435, 435),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "personality": (135, 92),
    "adjtimex": (159, 171),
    "clock_settime": (227, 112),
    "settimeofday": (164, 170),
    "sethostname": (170, 161),
    "vhangup": (153, 58),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "inotify_init1": (294, 26),
    "setxattr": (188, 5),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "a_call_that_linux_does_not_have": (1000, 1000),
}
"""The numbers of x86_64 and of aarch64."""
_CALL = """
libc = ctypes.CDLL(None, use_errno=True)
number = {}[os.uname().machine]
result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
if result >= 0 or ctypes.get_errno() not in (1, 38):
    escaped(f"the kernel looked at the call: {{ctypes.get_errno()}}")
"""
_MACHINE_CODE = """
if os.uname().machine == "x86_64":
    import mmap
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # mov eax, 20 (getpid of 32 bits); int 0x80; ret
    code.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    if ctypes.CFUNCTYPE(ctypes.c_int)(at)() > 0:
        escaped("the second table of calls")
"""
_X32 = """
if os.uname().machine == "x86_64" and ctypes.CDLL(None).syscall(0x40000000 + 39) > 0:
    escaped("the third table of calls")
"""
_FAMILIES = {
    "netlink": 16,
    "packet": 17,
    "kernel_crypto": 38,
    "virtual_machine": 40,
    "bluetooth": 31,
    "can": 29,
    "tipc": 30,
    "rds": 21,
    "xdp": 44,
}

ATTEMPTS = (
    *(
        Attempt(name, "few_calls", _CALL.format({"x86_64": there, "aarch64": here}))
        for name, (there, here) in _NUMBERS.items()
    ),
    *(
        Attempt(
            f"socket_of_{name}",
            "few_calls",
            f"for kind in (1, 2, 3):\n    attempt(socket.socket, {family}, kind)",
        )
        for name, family in _FAMILIES.items()
    ),
    Attempt("pair_of_other_sockets", "few_calls", "attempt(socket.socketpair, 30, 1)"),
    Attempt("calls_of_32_bits", "few_calls", _MACHINE_CODE, ("exit", "signal")),
    Attempt("calls_of_x32", "few_calls", _X32, ("exit", "signal")),
)
