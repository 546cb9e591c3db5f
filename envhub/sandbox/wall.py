"""A wall around the rest of a process: no files, no network, no other processes, no rights, no way back. Linux only.

For code that is already loaded: after `shut_in` the process lives in an empty file system, in namespaces of its own, as nobody.
What it needs must have been imported before. Where the machine refuses a part, `WallError` says which, and nothing runs.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MNT_DETACH = 0x4000, 0x40000, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CAPABILITIES_V3 = 0x20080522
FIRST_NOBODY = 1_000_000  # ids that nobody has: each wall takes one of its own, so that one cannot use up another's processes
MOST_PROCESSES, MOST_FILES, MOST_ANSWER = 64, 65_536, 65_536
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


class WallError(RuntimeError):
    """This machine does not allow a part of the wall."""


def shut_in(*, memory_bytes: int, cpu_s: int) -> None:
    """Shut this process in, for good. It must have one thread, and must have been forked or started for the purpose.

    The process that calls becomes the keeper: it waits outside, ends with the walled one's exit code, and takes it along when
    it is terminated or its own parent dies. Only the walled process returns.

    Raises:
        WallError: this is no Linux, or it allows no namespaces or no pivot. Nothing may be run then.
    """
    if sys.platform != "linux" or os.uname().machine not in SYS_PIVOT_ROOT:
        raise WallError(f"a wall needs Linux on one of {', '.join(SYS_PIVOT_ROOT)}")
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    _must(libc.unshare(NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET | (0 if uid == 0 else NEWUSER)), "unshare")
    if uid:
        _map_to_self(uid, gid)
    walled = os.fork()  # the first process of the new pid namespace: all others in it die with it
    if walled:
        _keep(libc, walled)
    _empty_root(libc)
    limits = ((resource.RLIMIT_NPROC, MOST_PROCESSES), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0))
    for limit, most in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_s), *limits):
        resource.setrlimit(limit, (most, most))
    if uid == 0:
        nobody = FIRST_NOBODY + int.from_bytes(os.urandom(4), "big") % 1_000_000_000
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
    _must(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")  # a user namespace's first process has them all
    _must(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "dumpable")  # a fork cannot trace what it was forked from
    _must(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    os.environ.clear()


def forked(function: Callable[[], Any], *, seconds: float) -> Any:
    """What `function` gives, as plain JSON data, in a fork with no open file but its answer's. It is hostile: only compare it.

    For code that must not answer in its caller's stead. It sees a copy of the caller's memory: keep out what it must not know.

    Raises:
        TimeoutError: it did not answer in time, and was killed.
        ValueError: it died, raised, or answered no JSON of at most 64 KiB.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writing, 0)
            os.closerange(1, MOST_FILES)
            os.write(0, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    answer, deadline = b"", time.monotonic() + seconds
    try:
        while len(answer) <= MOST_ANSWER:
            if not select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the forked code took over {seconds:g} s")
            if not (some := os.read(reading, MOST_ANSWER)):
                break
            answer += some
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(answer[: MOST_ANSWER + 1])


def _keep(libc: ctypes.CDLL, walled: int) -> NoReturn:
    """Wait for the walled process outside the wall. It cannot reach the keeper, so it cannot get away from it either."""

    def take_along(*_: object) -> None:
        os.kill(walled, signal.SIGKILL)

    signal.signal(signal.SIGTERM, take_along)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    _, status = os.waitpid(walled, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _map_to_self(uid: int, gid: int) -> None:
    """Inside its user namespace an ordinary user keeps its own id, and no more than that."""
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    except OSError as error:
        raise WallError(f"user namespaces: {error}") from error


def _empty_root(libc: ctypes.CDLL) -> None:
    """An empty, read-only file system becomes the root, and the old one is taken away."""
    _must(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    root = tempfile.mkdtemp(prefix="envhub-wall-").encode()
    _must(libc.mount(b"none", root, b"tmpfs", 0, b"size=1m,mode=755"), "tmpfs")
    os.chdir(root)
    os.mkdir("old")
    _must(libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"old"), "pivot_root")
    os.chdir("/")
    with contextlib.suppress(OSError):
        os.rmdir(b"/old" + root)  # the folder that the new root was mounted on
    _must(libc.umount2(b"/old", MNT_DETACH), "umount")
    os.rmdir("/old")
    _must(libc.mount(None, b"/", None, 0x20 | 0x1 | 0x2 | 0x8, None), "read-only root")  # remount, ro, nosuid, noexec


def _must(result: int, what: str) -> None:
    if result:
        raise WallError(f"{what}: {os.strerror(ctypes.get_errno())}")
