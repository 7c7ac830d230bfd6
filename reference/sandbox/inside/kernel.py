"""What Python has no call for: prctl, unshare, mount, Landlock and seccomp, by their numbers.

Sources: Linux `include/uapi/linux/{prctl,sched,mount,landlock,seccomp,filter,audit}.h`, the tables
of system calls of x86_64 and arm64, and `Documentation/userspace-api/landlock.rst`. Other machines
have no filter of calls (`filters` is false there).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial

_LIBC = ctypes.CDLL(None, use_errno=True)

NEW_MOUNTS, NEW_NAMES, NEW_IPC = 0x00020000, 0x04000000, 0x08000000
NEW_USERS, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
MOUNTS = NEW_MOUNTS | NEW_PIDS
"""Used together: with new process ids, the machine's `/proc` would show the wrong processes."""
_NEW_ANY = 0x7E020000  # all of these and CLONE_NEWCGROUP
_NO_SUID, _NO_DEVICES, _NO_EXEC, _RECURSIVE_PRIVATE = 2, 4, 8, 0x4000 | 0x40000
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _SET_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
_MOUNT_SETATTR, _HERE, _RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""Rights of a Landlock rule that make sense on a file: run, write, read, truncate, ioctl."""
_READ = 1 << 0 | 1 << 2 | 1 << 3

# fmt: off
_CALLS = {
    "x86_64": {
        "arch": 0xC000003E, "clone": 56, "socket": 41, "socketpair": 53,
        "first": (142, 144, 203, 302, 314), "second": (141, 251),
        "allowed": (
            (0, 28), (32, 40), (42, 52), (54, 55), (57, 63), (72, 100), (102, 102), (104, 133),
            (137, 138), (140, 152), (157, 158), (160, 160), (186, 187), (191, 196), (200, 204),
            (213, 213), (217, 219), (221, 226), (228, 235), (247, 247), (251, 252), (257, 271),
            (273, 277), (280, 293), (295, 297), (299, 299), (302, 302), (307, 307), (309, 309),
            (314, 316), (318, 318), (322, 322), (324, 332), (334, 334),
        ),
    },
    "aarch64": {
        "arch": 0xC00000B7, "clone": 220, "socket": 198, "socketpair": 199,
        "first": (118, 119, 122, 261, 274), "second": (30, 140),
        "allowed": (
            (8, 13), (17, 17), (19, 25), (29, 38), (43, 50), (52, 57), (59, 59), (61, 74), (76, 80),
            (82, 88), (90, 91), (93, 96), (98, 103), (107, 111), (113, 115), (118, 141), (143, 160),
            (163, 169), (172, 179), (200, 216), (221, 223), (226, 233), (240, 240), (242, 243),
            (260, 261), (269, 269), (274, 276), (278, 278), (281, 281), (283, 291), (293, 293),
        ),
    },
}
# fmt: on
"""By machine: the calls that a program may make, first and last number of each range. Those with a
process as `first` or `second` argument (sched_set*, prlimit64; setpriority, ioprio_set) are for the
caller itself: without root its supervisor has the same user. Not among them, by purpose:

memory that no process maps: memfd_*, System V and POSIX queues, segments and semaphores, aio,
vmsplice, inotify, extended attributes; NUMA policies;
tracing: ptrace, process_vm_*, kcmp, perf_event_open, pidfd_getfd, process_madvise, userfaultfd;
the machine: mounts, quotas, swap, sync, modules, kexec, bpf, reboot, syslog, clocks, host names,
ports, personality, keys, handles of files, fanotify, io_uring, further filters, namespaces."""
_ALLOWED_ANYWHERE = ((424, 424), (434, 434), (436, 437), (439, 439), (441, 441), (449, 449))
"""pidfd_send_signal, pidfd_open, close_range, openat2, faccessat2, epoll_pwait2, futex_waitv:
numbers that all machines share. Calls that Linux got after 449 are not known here."""
_UNIX, _INET, _INET6 = 1, 2, 10
_X32 = 0x40000000  # the first number of x86_64's second table, which a filter must not forget


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, what: str) -> None:
    zero = ctypes.c_ulong(0)
    _check(_LIBC.prctl(option, ctypes.c_ulong(value), zero, zero, zero), what)


def die_with_parent() -> None:
    """SIGKILL to this process when the thread that started it ends."""
    _prctl(_SET_PDEATHSIG, 9, "PR_SET_PDEATHSIG")


def hide_memory() -> None:
    """Nobody of the same user may trace this process or read its /proc entries."""
    _prctl(_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")


def adopt_orphans() -> None:
    """Descendants whose parents die become children of this process."""
    _prctl(_SET_SUBREAPER, 1, "PR_SET_CHILD_SUBREAPER")


def no_new_privileges() -> None:
    """Neither set-user-id bits nor file capabilities count from now on."""
    _prctl(_SET_NO_NEW_PRIVS, 1, "PR_SET_NO_NEW_PRIVS")


def unshare(flags: int) -> None:
    """New namespaces of these kinds; of processes only for children to come."""
    _check(_LIBC.unshare(flags), "unshare")


def map_user(inside: int, user: int, group: int) -> None:
    """In a new user namespace, this process's user and group (its old ids) under one id."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {user} 1"),
        ("gid_map", f"{inside} {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (source.encode(), target.encode(), kind.encode())
    _check(_LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def own_mounts(scratch: str, size: int, inodes: int) -> None:
    """In new namespaces of mounts and processes: all file systems read-only (Linux 5.12), a `/proc`
    that shows only these processes, and a scratch folder of its own that holds `size` bytes and
    `inodes` files, and no more."""
    _mount("none", "/", "none", _RECURSIVE_PRIVATE)
    attributes = struct.pack("=QQQQ", _READ_ONLY, 0, 0, 0)
    words = (_HERE, b"/", _RECURSIVE, attributes, ctypes.c_size_t(len(attributes)))
    _check(_LIBC.syscall(_MOUNT_SETATTR, *words), "mount_setattr")
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_EXEC)
    options = f"size={size},nr_inodes={inodes},mode=0700"
    _mount("tmpfs", scratch, "tmpfs", _NO_SUID | _NO_DEVICES, options)


def landlock_abi() -> int:
    """The version of Landlock that this kernel speaks, 0 for none."""
    return max(0, _LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def landlock(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Files below these paths only, from now on: read and run, or everything. With version 4 no TCP
    connection, with version 6 no signal to a process outside, and no abstract Unix socket of one.

    Needs `no_new_privileges` first.
    """
    abi = landlock_abi()
    every = (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1
    attributes = struct.pack("=QQQ", every, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    rules = _check(_LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0), "landlock")
    allowed = [*((path, _READ) for path in readable), *((path, every) for path in writable)]
    for path, rights in allowed:
        _allow(rules, path, rights & every)
    _check(_LIBC.syscall(_RESTRICT_SELF, rules, 0), "landlock_restrict_self")
    os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # systems differ in what they have
    try:
        found = os.fstat(place).st_mode & 0o170000
        rights = rights if found == 0o040000 else rights & _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, place)
        _check(_LIBC.syscall(_ADD_RULE, rules, 1, rule, 0), f"landlock rule for {path}")
    finally:
        os.close(place)


def filters() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return platform.machine() in _CALLS and ctypes.sizeof(ctypes.c_void_p) == 8


def filter_calls(*, sockets: bool) -> None:
    """Only calls of the list from now on; others are as in a kernel that lacks them. No new
    namespace, no socket but of the internet and Unix families; without `sockets` only Unix pairs.

    Needs `no_new_privileges` first.
    """
    code = b"".join(struct.pack("=HBBI", *one) for one in _program(sockets))
    text = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(text))
    held = ctypes.create_string_buffer(program, len(program))
    address = ctypes.c_void_p(ctypes.addressof(held))
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(2)
    _check(_LIBC.prctl(_SET_SECCOMP, mode, address, zero, zero), "PR_SET_SECCOMP")


_LOAD, _EQUAL, _ABOVE, _AT_LEAST, _ANY_BIT, _GIVE = 0x20, 0x15, 0x25, 0x35, 0x45, 0x06
_KILL, _ALLOW = 0x80000000, 0x7FFF0000
_REFUSE, _MISSING = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`: the call's number, the machine, the first two arguments."""
_Row = tuple[int, int, int, int]


def _program(sockets: bool) -> Sequence[_Row]:
    """The filter as classic BPF: rows of operation, jump if true, jump if false, value."""
    machine = _CALLS[platform.machine()]
    ranges = (*machine["allowed"], *_ALLOWED_ANYWHERE)
    return (
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, machine["arch"]),
        (_GIVE, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_GIVE, 0, 0, _KILL),
        (_EQUAL, 0, 4, machine["clone"]),
        (_LOAD, 0, 0, _FIRST),
        (_ANY_BIT, 0, 1, _NEW_ANY),
        (_GIVE, 0, 0, _REFUSE),
        (_GIVE, 0, 0, _ALLOW),
        *_only(machine["socket"], (_UNIX, _INET, _INET6) if sockets else ()),
        *_only(machine["socketpair"], (_UNIX,)),
        *(row for call in machine["first"] for row in _only(call, (0,))),
        *(row for call in machine["second"] for row in _only(call, (0,), _SECOND)),
        *(row for first, last in ranges for row in _range(first, last)),
        (_GIVE, 0, 0, _MISSING),
    )


def _only(number: int, values: Sequence[int], argument: int = _FIRST) -> Iterable[_Row]:
    """Refuse a call unless an argument is one of these."""
    left = len(values)
    return (
        (_EQUAL, 0, left + 3, number),
        (_LOAD, 0, 0, argument),
        *((_EQUAL, left - at, 0, value) for at, value in enumerate(values)),
        (_GIVE, 0, 0, _REFUSE),
        (_GIVE, 0, 0, _ALLOW),
    )


def _range(first: int, last: int) -> Iterable[_Row]:
    return ((_AT_LEAST, 0, 2, first), (_ABOVE, 1, 0, last), (_GIVE, 0, 0, _ALLOW))


def main() -> None:
    """Print as JSON what this kernel lets this user do, each tried in a process of its own:
    `namespaces` (flags that work together), `landlock` (its version, or 0), `filter`."""
    users = 0 if os.geteuid() == 0 else NEW_USERS
    kinds = (MOUNTS, NEW_NETWORK, NEW_IPC, NEW_NAMES)
    works = [flags for flags in kinds if _succeeds(partial(_try_namespaces, users | flags))]
    locks = landlock_abi() if _succeeds(_try_landlock) else 0
    calls = filters() and _succeeds(_try_filter)
    all_flags = sum(works) | (users if works else 0)
    print(json.dumps({"namespaces": all_flags, "landlock": locks, "filter": calls}))  # noqa: T201


def _try_namespaces(flags: int) -> None:
    import tempfile  # noqa: PLC0415  slow to load, and every run loads this module

    user, group = os.geteuid(), os.getegid()
    unshare(flags)
    if flags & NEW_USERS:
        map_user(user, user, group)
    mounts = partial(own_mounts, tempfile.gettempdir(), 1 << 16, 16)
    if flags & NEW_PIDS and not _succeeds(mounts):
        raise OSError


def _try_landlock() -> None:
    no_new_privileges()
    landlock(["/usr"], [])


def _try_filter() -> None:
    no_new_privileges()
    filter_calls(sockets=False)


def _succeeds(action: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException:  # noqa: BLE001  any failure means no
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
