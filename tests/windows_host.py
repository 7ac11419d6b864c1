"""Runs commands in a Python that lacks what Python lacks on Windows: modules, functions, signals.

It reads a line of JSON, a list of commands, and writes one with the exit code, stdout and stderr of each. The
libraries of others and the standard library are imported before, since they ask for the system once and would
then load Windows' own DLLs: what is tested is that no module of rocmprobe needs anything of POSIX.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import importlib.abc
import importlib.util
import inspect
import json
import logging.handlers  # noqa: F401
import os
import pkgutil
import platform
import select
import signal
import subprocess  # noqa: F401
import sys
import tempfile  # noqa: F401
import xml.dom.minidom  # noqa: F401

#: Modules of the standard library that Python on Windows does not have.
MODULES = (
    "fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "crypt", "spwd", "nis",
    "curses", "_posixsubprocess", "_posixshmem", "readline",
)  # fmt: skip
FUNCTIONS = (
    "fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getgid", "getegid", "getgroups",
    "setuid", "setsid", "setpgid", "getpgid", "getpgrp", "getsid", "killpg", "wait", "wait3",
    "wait4", "waitid", "WNOHANG", "WNOWAIT", "WEXITED", "P_PID", "P_PIDFD", "pidfd_open",
    "sched_getaffinity", "sched_setaffinity", "nice", "sysconf", "confstr", "statvfs", "fstatvfs",
    "uname", "getloadavg", "mkfifo", "mknod", "chown", "fchown", "lchown", "fchmod", "O_NONBLOCK",
    "O_CLOEXEC", "O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_NOCTTY", "O_SYNC", "openpty", "ttyname",
    "ctermid", "tcgetpgrp", "posix_spawn", "getxattr", "sendfile", "pread", "pwrite",
)  # fmt: skip
SIGNALS = (
    "SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGSTOP",
    "SIGCONT", "SIGTSTP", "SIGPIPE", "SIGWINCH", "SIGBUS", "SIGTRAP", "alarm", "setitimer",
    "getitimer", "pthread_sigmask", "pthread_kill", "sigwait", "sigpending", "siginterrupt",
)  # fmt: skip
#: Libraries whose modules must be there before: all that rocmprobe imports of others.
OTHERS = (
    "click",
    "rich",
    "jinja2",
    "msgspec",
    "markupsafe",
    "packaging",
    "allpairspy",
)


class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def import_all(package: str) -> None:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(getattr(found, "__path__", []), f"{package}.", lambda name: None):
        if any(word in module.name for word in ("win", "__main__", "test", "ext.", "_extension", "diagnose")):
            continue
        try:
            importlib.import_module(module.name)
        except Exception:
            continue


def main() -> None:
    for package in OTHERS:
        import_all(package)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())
    for module, names in ((os, FUNCTIONS), (signal, SIGNALS), (select, ("poll", "epoll", "kqueue"))):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    sys.platform = "win32"
    platform.system = lambda: "Windows"
    platform.release = lambda: "11"
    platform.version = lambda: "10.0.26100"
    platform.processor = lambda: "AMD64 Family 25 Model 97 Stepping 2, AuthenticAMD"
    platform.platform = lambda *_, **__: "Windows-11-10.0.26100-SP0"
    from click.testing import CliRunner

    from rocmprobe.cli import main as command

    # click 8.2 always keeps the two streams apart, and has no such option.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    answers = []
    for words in json.loads(sys.stdin.readline()):
        found = CliRunner(**apart).invoke(command, words, prog_name="rocmprobe", catch_exceptions=False)
        answers.append((found.exit_code, found.stdout, found.stderr))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
