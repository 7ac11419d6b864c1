"""Redaction of identifiers of people and machines, because users attach reports to public issues.

Secrets are replaced first, then the names of this user and this machine, then other identifiers.
``data/identifiers.toml`` has the forms of secrets and identifiers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

from rocmprobe.text.plain_text import without_escapes
from rocmprobe.text.tables import Row, rows, table

_T = TypeVar("_T")
_KINDS = ("user", "group", "host", "home", "ip", "mac", "uuid", "serial", "email", "token")
_PLACEHOLDER = re.compile(rf"<({'|'.join(_KINDS)})(?:-[0-9a-f]{{5}})?>")

#: Texts with fewer characters are remembered, because the records of a run repeat them.
_REPEATED = 200
#: Keys whose values stay unchanged: words from rocmprobe, or ids to which other records refer.
_OURS = frozenset({
    "id", "record", "case", "cases", "needs", "device", "driver", "setting", "settings", "check", "rung",
    "state", "trial", "problem", "problems", "direction", "directions", "dtype", "dtypes", "phase",
    "activity", "cause", "failure", "solver", "native_isa", "effective_isa", "exit", "start_method",
    "status", "after", "severity", "layer", "verdict", "name", "backend", "level", "purpose", "only", "skip",
    "schema_version", "rocmprobe", "started", "finished", "boot", "environment",
})  # fmt: skip
_IDENTIFIER_NAMES = {
    "hostname": "host", "nodename": "host", "username": "user", "serial": "serial", "serial_number": "serial",
    "unique_id": "uuid", "uuid": "uuid", "machine_id": "uuid", "boot_id": "uuid",
}  # fmt: skip
_TOKEN_NAME = re.compile(
    r"(?i)(?:^|[._-])(?:token|secret|passw(?:or)?d|credentials?|(?:api|access|private)[_-]?key)$"
)

#: Names that identify nobody: common names of accounts and machines, and frequent words in logs.
_EVERYBODYS = frozenset({
    "root", "user", "users", "admin", "administrator", "guest", "nobody", "test", "tests", "tester", "demo",
    "default", "vagrant", "ec2-user", "azureuser", "debian", "ubuntu", "fedora", "arch", "archlinux",
    "centos", "rocky", "opensuse", "suse", "gentoo", "nixos", "manjaro", "mint", "kali", "linux", "windows",
    "docker", "podman", "container", "kubernetes", "jenkins", "github", "gitlab", "runner", "build",
    "builder", "buildd", "dev", "developer", "host", "hostname", "localhost", "local", "localdomain",
    "node", "server", "desktop", "laptop", "computer", "workstation", "data", "work", "workspace", "app",
    "main", "max", "min", "none", "null", "true", "false", "gpu", "cpu", "amd", "amdgpu", "nvidia", "intel",
    "radeon", "rocm", "hip", "hsa", "kfd", "miopen", "cuda", "torch", "pytorch", "python", "pytest",
    "conda", "unknown", "index.html",
    # Groups and accounts of every Linux system
    "adm", "audio", "bin", "cdrom", "daemon", "dialout", "disk", "games", "input", "kvm", "libvirt", "lxd",
    "mail", "man", "netdev", "nogroup", "plugdev", "render", "staff", "sudo", "sys", "syslog", "tty", "video",
    "wheel", "www-data",
}).union(_KINDS)  # fmt: skip


def redacted(data: _T) -> _T:
    """Return ``data`` with a placeholder for every identifier of a person or machine.

    ``data`` is JSON data, a dataclass or a Struct. The names of fields count as keys.
    Case ids, states and rocmprobe's own words stay unchanged. On Linux, an identifier gets the same
    placeholder in all processes of a run. Placeholders are not redacted again.
    """
    clean: _T = _walked(data)
    return clean


def redacted_text(text: str) -> str:
    """Return ``text`` with a placeholder for every identifier."""
    return _short(text) if len(text) < _REPEATED else _replaced(text, _rules(own=True))


@lru_cache(maxsize=8192)
def _short(text: str) -> str:
    return _replaced(text, _rules(own=True))


def census(data: Any) -> dict[str, int]:
    """Return the number of placeholders of each kind in ``data``, which is as for ``redacted``."""
    counts = Counter(match[1] for text in _texts(data) for match in _PLACEHOLDER.finditer(text))
    return {kind: counts[kind] for kind in _KINDS if counts[kind]}


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        if "<" in data:
            yield data
    elif isinstance(data, Mapping):
        for key, item in data.items():
            yield key
            yield from _texts(item)
    elif isinstance(data, (list, tuple)):
        for item in data:
            yield from _texts(item)
    else:
        for name in field_names(data.__class__):
            yield from _texts(getattr(data, name))


def _walked(data: Any, ours: bool = False, kind: Optional[str] = None) -> Any:
    if isinstance(data, Mapping):
        # A fact has the form {name: {"value": ...}}. The name says how to redact the value.
        return {
            _clean_key(key): _walked(item, key in _OURS, _kind(key) or (kind if key == "value" else None))
            for key, item in data.items()
        }
    if isinstance(data, (list, tuple)):
        return type(data)([_walked(item, ours, kind) for item in data])
    if isinstance(data, str):
        return data if ours else _value(data, kind)
    if isinstance(data, (int, float, type(None))):
        # Small integers are counts. Large integers can be serial numbers or ids of GPUs.
        return _value(str(data), kind) if kind and isinstance(data, int) and data >= 2**32 else data
    fields = {name: getattr(data, name) for name in field_names(data.__class__)}
    clean = _walked(fields, False, kind)
    return type(data)(**{name: clean[name] for name in fields}) if clean != fields else data


@lru_cache(maxsize=64)
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a Struct, or () for another type."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "__struct_fields__", ()))


def _value(text: str, kind: Optional[str]) -> str:
    if kind == "token":
        return "<token>" if len(text) >= 4 else text
    clean = redacted_text(text)
    if kind is None or _PLACEHOLDER.search(clean):
        return clean
    is_name = text.isprintable() and " " not in text
    is_number = re.fullmatch(r"(?:0[xX])?(?=[A-Z-]*\d|[a-f0-9-]+$)[\w-]{6,64}", text)
    if not (is_name if kind in ("user", "host") else is_number):
        return text
    return _placeholder(kind, text) or text


@lru_cache(maxsize=4096)
def _kind(key: str) -> Optional[str]:
    if _TOKEN_NAME.search(key):
        return "token"
    return _IDENTIFIER_NAMES.get(key.rpartition(".")[2].lower().replace(" ", "_"))


@lru_cache(maxsize=4096)
def _clean_key(key: str) -> str:
    # A key that is not a path is rocmprobe's own word, so do not look for user names in it.
    return _replaced(key, _rules(own=key.startswith("/")))


class _Form(Row, frozen=True):
    """A row of ``data/identifiers.toml``."""

    pattern: str
    triggers: tuple[str, ...]
    yes: str
    no: str


class _Rule:
    """A rule that replaces each named group of a pattern. The name of the group is the kind of its text.

    Every match contains at least one of ``triggers`` (in lower case). ``placeholder`` is for all matches, or
    each text gets its own.
    """

    def __init__(self, pattern: str, triggers: tuple[str, ...], placeholder: str = "") -> None:
        self.triggers = triggers
        self._text = pattern
        self._placeholder = placeholder

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        # Compiled late, because few rules are needed, and compilation is slow.
        return re.compile(self._text, re.VERBOSE | re.MULTILINE)

    def applied(self, text: str) -> str:
        return self._pattern.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        if self._placeholder:
            return self._placeholder
        parts, end = [], match.start()
        for kind, text in match.groupdict().items():
            if text is not None:
                start = match.start(kind)
                parts += [match.string[end:start], _placeholder(kind, text, match) or text]
                end = match.end(kind)
        return "".join((*parts, match.string[end : match.end()]))


@lru_cache(maxsize=2)
def _rules(own: bool) -> tuple[_Rule, ...]:
    return (*_forms("secret"), *(_own() if own else ()), *_forms("identifier"))


def _forms(key: str) -> tuple[_Rule, ...]:
    fragments = table("identifiers")["fragments"]
    return tuple(
        _Rule(re.sub("«(.*?)»", lambda name: fragments[name[1]], form.pattern), form.triggers)
        for form in rows("identifiers", key, _Form)
    )


def _replaced(text: str, rules: Iterable[_Rule]) -> str:
    """Apply ``rules`` to ``text``, also to identifiers that colour codes split."""
    clean = _applied(text, rules)
    plain = without_escapes(clean, move=" ")
    if plain == clean:
        return clean
    again = _applied(plain, rules)
    # Keep the colours of a text that has no such identifier.
    return clean if again == plain else again


def _applied(text: str, rules: Iterable[_Rule]) -> str:
    lowered = text.lower()
    for rule in rules:
        for trigger in rule.triggers:
            if trigger in lowered:
                text = rule.applied(text)
                break
    return text


def _placeholder(kind: str, text: str, match: Optional[re.Match[str]] = None) -> Optional[str]:
    """Return the placeholder for ``text``, the group ``kind`` of ``match``.

    Return None if ``text`` identifies nobody. Different forms of an identifier get the same placeholder.
    """
    if kind == "token":
        return "<token>"
    identifier = _IDENTIFIERS.get(kind, lambda text, match: text)(text, match)
    return _label(kind, identifier) if identifier else None


def _label(kind: str, identifier: str) -> str:
    import hashlib  # Slow to import, and most texts have no identifiers.

    digest = hashlib.blake2b(identifier.lower().encode("utf-8", "replace"), key=_key(), digest_size=3)
    return f"<{kind}-{digest.hexdigest()[:5]}>"


@lru_cache(maxsize=1)
def _key() -> bytes:
    try:
        # Use the boot id, so that all processes since the last boot make the same placeholders.
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return os.urandom(32)


def _is_identifying(name: str) -> bool:
    """Return True if a name can identify a person or a machine."""
    # Names with fewer than three letters would match everywhere.
    return len(name) >= 3 and name.lower() not in _EVERYBODYS


def _name(text: str, match: object) -> Optional[str]:
    return text if _is_identifying(text) else None


def _home_of(text: str, match: object) -> str:
    return re.split(r"[\\/]|%2[Ff]", text)[-1]


def _uuid(text: str, match: object) -> Optional[str]:
    digits = text.lower().removeprefix("0x")
    if digits.isdigit() and 16 < len(digits) <= 20:
        digits = f"{int(digits):016x}"
    return digits if digits.strip("0-") else None


def _mac(text: str, match: object) -> Optional[str]:
    digits = re.sub("[:.-]", "", text.lower())
    return None if digits in ("0" * 12, "f" * 12) else digits


#: Text before four numbers which shows that the numbers are a version and not an address.
_VERSION = re.compile(
    r"""(?ix) (?: [=<>~]= | [a-z]\w{0,30}[-_/]
        | \b(?:v|ver|versions?|release|driver|firmware|v?bios|rocm|hip|cuda|lib\w{0,20}|[\w-]{0,30}cu1\d)
          ["']? \s? [:=(]? \s* ["']? v?
    )$"""
)
_ADDRESS = re.compile(
    r"(?i)(?://|@|\bssh_\w{4,10}=['\"]?|\b(?:ip|ipv4|addr|address|inet|host|peer|server|gateway|client)\W{1,3})$"
)


def _ip(text: str, match: re.Match[str]) -> Optional[str]:
    """Return an IP address in its usual form, or None if it does not identify a machine."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        return address.compressed
    first, second, *others = address.packed
    if first in (0, 127, 255):
        return None
    if (first, second) in ((192, 168), (169, 254)) or (first == 172 and 16 <= second < 32):
        return text
    start, end = match.span("ip")
    before, after = match.string[max(0, start - 48) : start], match.string[end : end + 6]
    if _ADDRESS.search(before) or re.match(r":\d{2,5}(?!\d)|/\d{1,2}(?!\d)", after):
        return text
    # A version such as 5.2.3.1 or 12.1.0.106 begins with a small number, and most of its other numbers are
    # small.
    small = first < 32 and first != 10 and sum(number < 10 for number in (second, *others)) >= 2
    is_version = small or _VERSION.search(before) or re.match(r"[-+]?[A-Za-z_]", after)
    return None if is_version else text


#: Functions that return the usual form of an identifier, or None if it identifies nobody.
_IDENTIFIERS: Mapping[str, Callable[[str, Any], Optional[str]]] = {
    "user": _name, "group": _name, "host": _name, "home": _home_of, "ip": _ip, "mac": _mac, "uuid": _uuid,
}  # fmt: skip


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def _users() -> set[str]:
    names = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        names.add(pwd.getpwuid(os.getuid()).pw_name)
    if _home().parent.name in ("home", "Users"):
        names.add(_home().name)
    return set(filter(_is_identifying, names))


def _groups() -> set[str]:
    names = set()
    with contextlib.suppress(ImportError, AttributeError):
        import grp

        for number in os.getgroups():
            with contextlib.suppress(KeyError):
                names.add(grp.getgrgid(number).gr_name)
    return set(filter(_is_identifying, names)) - _users()


def _hosts() -> set[str]:
    names = {socket.gethostname(), os.environ.get("HOSTNAME", ""), os.environ.get("COMPUTERNAME", "")}
    return set(filter(_is_identifying, names | {name.partition(".")[0] for name in names}))


def _own() -> tuple[_Rule, ...]:
    """Return the rules for the names of this user and this machine, the longest names first."""
    edge, end = (table("identifiers")["fragments"][name] for name in ("edge", "end"))
    domain = r"(?:\.(?!(?:log|txt|json|html|py)\b)[A-Za-z][A-Za-z0-9-]{1,62}){0,5}"
    # Libraries print the home folder with links resolved, so redact both forms.
    homes = {str(_home()), str(_home().resolve())} - {"/"}
    kinds = (
        ("home", homes, r"(?<![\w.-])NAME(?!\.?[\w@+-])"),
        ("user", _users(), f"{edge}NAME{end}"),
        ("group", _groups(), f"{edge}NAME{end}"),
        ("host", _hosts(), f"{edge}(?i:NAME){domain}{end}"),
    )
    return tuple(
        _Rule(pattern.replace("NAME", re.escape(name)), (name.lower(),), f"<{kind}>")
        for kind, names, pattern in kinds
        for name in sorted(names, key=lambda name: (-len(name), name))
    )
