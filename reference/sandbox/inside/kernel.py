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
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
"""Rights of a Landlock rule that make sense on a file: run, write, read, truncate, ioctl."""
_READ = 1 << 0 | 1 << 2 | 1 << 3

# fmt: off
_CALLS = {
    "x86_64": {
        "arch": (0xC000003E,), "clone": (56,), "socket": (41,),
        "denied": (101, 103, 155, 161, 163, 164, 165, 166, 167, 168, 169, 175, 176, 179, 227, 246,
                   248, 249, 250, 272, 298, 303, 304, 308, 310, 311, 313, 320, 321, 323),
    },
    "aarch64": {
        "arch": (0xC00000B7,), "clone": (220,), "socket": (198,),
        "denied": (117, 116, 41, 51, 89, 170, 40, 39, 224, 225, 142, 105, 106, 60, 112, 104,
                   217, 218, 219, 97, 241, 264, 265, 268, 270, 271, 273, 294, 280, 282),
    },
}
# fmt: on
"""ptrace, syslog, pivot_root, chroot, acct, settimeofday, mount, umount2, swapon, swapoff, reboot,
init_module, delete_module, quotactl, clock_settime, kexec_load, add_key, request_key, keyctl,
unshare, perf_event_open, name_to_handle_at, open_by_handle_at, setns, process_vm_readv,
process_vm_writev, finit_module, kexec_file_load, bpf, userfaultfd."""
_DENIED_ANYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442)
"""io_uring (3), open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, pidfd_getfd,
mount_setattr: numbers that all machines share."""
_CLONE3 = 435
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
    """In new namespaces of mounts and processes: a `/proc` that shows only these processes, and a
    scratch folder of its own that holds `size` bytes and `inodes` files, and no more."""
    _mount("none", "/", "none", _RECURSIVE_PRIVATE)
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
    """No call from now on that traces, mounts, enters namespaces, loads code into the kernel or
    hands work to rings; without `sockets` none that makes a socket, either (pairs stay).

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


def _program(sockets: bool) -> Sequence[tuple[int, int, int, int]]:
    """The filter as classic BPF: each forbidden number is a comparison and a return."""
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, allow = 0x80000000, 0x7FFF0000
    refuse, missing = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    machine = _CALLS[platform.machine()]
    denied = (*machine["denied"], *_DENIED_ANYWHERE, *(() if sockets else machine["socket"]))
    return (
        (load, 0, 0, 4),
        (equal, 1, 0, *machine["arch"]),
        (give, 0, 0, kill),
        (load, 0, 0, 0),
        (at_least, 0, 1, _X32),
        (give, 0, 0, kill),
        (equal, 0, 1, _CLONE3),  # its flags are in memory; C libraries then take `clone`
        (give, 0, 0, missing),
        *(row for number in denied for row in ((equal, 0, 1, number), (give, 0, 0, refuse))),
        (equal, 0, 3, *machine["clone"]),
        (load, 0, 0, 16),
        (any_bit, 0, 1, _NEW_ANY),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    )


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
