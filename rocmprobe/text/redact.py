"""Redaction of identifiers of people and machines, because users attach reports to public issues.

Some rules find the names of this user and this machine. Other rules find identifiers by their form:
addresses, UUIDs, home folders, tokens.
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
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar, Union

_T = TypeVar("_T")
_KINDS = ("user", "host", "home", "ip", "mac", "uuid", "serial", "email", "token")
_PLACEHOLDER = re.compile(rf"<({'|'.join(_KINDS)})(?:-[0-9a-f]{{5}})?>")

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
    "conda",
}).union(_KINDS)  # fmt: skip


def redacted(data: _T) -> _T:
    """Return ``data`` with a placeholder for every identifier of a person or machine.

    ``data`` is JSON data, a dataclass or a Struct. The names of fields count as keys.
    Case ids, states and rocmprobe's own words stay unchanged. On Linux, an identifier gets the same
    placeholder in all processes of a run. Placeholders are not redacted again.
    """
    clean: _T = _walked(data, (*_TOKENS, *_own(), *_FORMS))
    return clean


def redacted_text(text: str) -> str:
    """Return ``text`` with a placeholder for every identifier."""
    return _replaced(text, (*_TOKENS, *_own(), *_FORMS))


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


def _walked(data: Any, rules: tuple[_Rule, ...], ours: bool = False, kind: Optional[str] = None) -> Any:
    if isinstance(data, Mapping):
        # A fact has the form {name: {"value": ...}}. The name says how to redact the value.
        return {
            _clean_key(key, rules): _walked(
                item, rules, key in _OURS, _kind(key) or (kind if key == "value" else None)
            )
            for key, item in data.items()
        }
    if isinstance(data, (list, tuple)):
        return type(data)([_walked(item, rules, ours, kind) for item in data])
    if isinstance(data, str):
        return data if ours else _value(data, kind, rules)
    if isinstance(data, (int, float, type(None))):
        # Small integers are counts. Large integers can be serial numbers or ids of GPUs.
        return _value(str(data), kind, rules) if kind and isinstance(data, int) and data >= 2**32 else data
    fields = {name: getattr(data, name) for name in field_names(data.__class__)}
    clean = _walked(fields, rules, False, kind)
    return type(data)(**{name: clean[name] for name in fields}) if clean != fields else data


@lru_cache(maxsize=64)
def field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or a Struct, or () for another type."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "__struct_fields__", ()))


def _value(text: str, kind: Optional[str], rules: tuple[_Rule, ...]) -> str:
    if kind == "token":
        return "<token>" if len(text) >= 4 else text
    clean = _replaced(text, rules)
    if kind is None or _PLACEHOLDER.search(clean):
        return clean
    if kind in ("user", "host"):
        return (
            _label(kind, text) if _is_identifying(text) and text.isprintable() and " " not in text else text
        )
    looks = re.fullmatch(r"(?:0[xX])?(?=[A-Z-]*\d|[a-f0-9-]+$)[\w-]{6,64}", text)
    return (_uuid_label(text) if kind == "uuid" else _label(kind, text)) if looks else text


@lru_cache(maxsize=4096)
def _kind(key: str) -> Optional[str]:
    if _TOKEN_NAME.search(key):
        return "token"
    return _IDENTIFIER_NAMES.get(key.rpartition(".")[2].lower().replace(" ", "_"))


def _clean_key(key: str, rules: tuple[_Rule, ...]) -> str:
    # A key that is not a path is rocmprobe's own word, so do not look for user names in it.
    return _replaced(key, rules) if key.startswith("/") else _clean_name(key)


@lru_cache(maxsize=4096)
def _clean_name(key: str) -> str:
    return _replaced(key, (*_TOKENS, *_FORMS))


class _Rule(NamedTuple):
    """A rule that replaces matches of ``pattern`` with ``made``.

    Every match contains at least one of ``triggers`` (in lower case).
    """

    triggers: tuple[str, ...]
    pattern: re.Pattern[str]
    made: Union[str, Callable[[re.Match[str]], str]]


def _replaced(text: str, rules: Iterable[_Rule]) -> str:
    lowered = text.lower()
    for triggers, pattern, made in rules:
        for trigger in triggers:
            if trigger in lowered:
                text = pattern.sub(made, text)
                break
    return text


@lru_cache(maxsize=1)
def _key() -> bytes:
    try:
        # Use the boot id, so that all processes since the last boot make the same placeholders.
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return os.urandom(32)


def _label(kind: str, identifier: str) -> str:
    """Return a placeholder that contains a keyed digest of ``identifier``."""
    import hashlib  # Slow to import, and most texts have no identifiers.

    digest = hashlib.blake2b(identifier.lower().encode("utf-8", "replace"), key=_key(), digest_size=3)
    return f"<{kind}-{digest.hexdigest()[:5]}>"


def _uuid_label(identifier: str) -> str:
    """Return the placeholder for a UUID. The decimal and the hexadecimal form get the same placeholder."""
    digits = identifier.lower().removeprefix("0x")
    if digits.isdigit() and 16 < len(digits) <= 20:
        digits = f"{int(digits):016x}"
    return _label("uuid", digits)


#: Beginning of a word, also after a colour code, after an escape in quoted text, and after an escape in a
#: URL.
_EDGE = r"(?:(?<![^\W_])|(?<=[\d\[]m)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_END = r"(?![^\W_])"
_HEX = "[0-9A-Fa-f]"
#: A name in a path. A full stop at the end belongs to the sentence and not to the name.
_NAME = r"(?P<name>\w(?:[\w.@+-]{0,62}\w)?)"


def _is_identifying(name: str) -> bool:
    """Return True if a name can identify a person or a machine."""
    # Names with fewer than three letters would match everywhere.
    return len(name) >= 3 and name.lower() not in _EVERYBODYS


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


def _hosts() -> set[str]:
    names = {socket.gethostname(), os.environ.get("HOSTNAME", ""), os.environ.get("COMPUTERNAME", "")}
    return set(filter(_is_identifying, names | {name.partition(".")[0] for name in names}))


def _longest_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (-len(name), name))


@lru_cache(maxsize=1)
def _own() -> tuple[_Rule, ...]:
    rules = []
    # Libraries print the home folder with links resolved, so redact both forms.
    for home in _longest_first({str(_home()), str(_home().resolve())} - {"/"}):
        pattern = rf"(?<![\w.-]){re.escape(home)}(?!\.?[\w@+-])"
        rules.append(_Rule((home.lower(),), re.compile(pattern), "<home>"))
    for user in _longest_first(_users()):
        rules.append(_Rule((user.lower(),), re.compile(_EDGE + re.escape(user) + _END), "<user>"))
    for host in _longest_first(_hosts()):
        domain = r"(?:\.(?!(?:log|txt|json|html|py)\b)[A-Za-z][A-Za-z0-9-]{1,62}){0,5}"
        pattern = f"{_EDGE}(?i:{re.escape(host)}){domain}{_END}"
        rules.append(_Rule((host.lower(),), re.compile(pattern), "<host>"))
    return tuple(rules)


def _foreign_home(match: re.Match[str]) -> str:
    return match["before"] + _label("home", match["name"])


def _account(match: re.Match[str]) -> str:
    user, host = match["user"], match["host"]
    shown = _label("user", user) if _is_identifying(user) else user
    return f"{shown}@{_label('host', host) if _is_identifying(host) else host}"


def _uuid(match: re.Match[str]) -> str:
    unset = not match["uuid"].strip("0xX-")
    return match[0] if unset else match["before"] + _uuid_label(match["uuid"])


def _mac(match: re.Match[str]) -> str:
    address = match[0].lower().replace("-", ":")
    everybody = address in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff")
    return match[0] if everybody else _label("mac", address)


def _ip6(match: re.Match[str]) -> str:
    try:
        return _label("ip", ipaddress.IPv6Address(match[0]).compressed)
    except ValueError:
        return match[0]


#: Text before four numbers which shows that the numbers are a version and not an address.
_VERSION = re.compile(
    r"""(?ix) (?: [=<>~]= | [a-z]\w{0,30}[-_/]
        | \b(?:v|ver|versions?|release|driver|firmware|v?bios|rocm|hip|cuda|lib\w{0,20}|[\w-]{0,30}cu1\d)
          ["']? \s? [:=(]? \s* ["']? v?
    )$"""
)
_ADDRESS = re.compile(r"(?i)(?://|@|\b(?:ip|ipv4|addr|address|inet|host|peer|server|gateway|client)\W{1,3})$")


def _ip4(match: re.Match[str]) -> str:
    """Return the placeholder for an IPv4 address, or the matched text if it does not identify a machine."""
    numbers = match[0].split(".")
    first, second, *others = map(int, numbers)
    if max(first, second, *others) > 255 or any(number[0] == "0" < number[1:] for number in numbers):
        return match[0]
    if first in (0, 127, 255):
        return match[0]
    label = _label("ip", match[0])
    if (first, second) in ((192, 168), (169, 254)) or (first == 172 and 16 <= second < 32):
        return label
    before = match.string[max(0, match.start() - 48) : match.start()]
    after = match.string[match.end() : match.end() + 6]
    if _ADDRESS.search(before) or re.match(r":\d{2,5}(?!\d)|/\d{1,2}(?!\d)", after):
        return label
    # A version such as 5.2.3.1 or 12.1.0.106 begins with a small number, and most of its other numbers are
    # small.
    small = first < 32 and first != 10 and sum(number < 10 for number in (second, *others)) >= 2
    if small or _VERSION.search(before) or re.match(r"[-+]?[A-Za-z_]", after):
        return match[0]
    return label


#: Rules for tokens come first, because a token can contain text that other rules would replace.
_TOKENS = (
    _Rule(
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "sk-", "akia", "asia",
         "xox"),
        re.compile(
            rf"""(?x) {_EDGE} (?:
                gh[pousr]_\w{{16,255}} | github_pat_\w{{16,255}} | glpat-[\w-]{{16,255}}
                | hf_[A-Za-z0-9]{{16,255}} | (?<!-)sk-[\w-]{{16,255}} | A(?:KI|SI)A[0-9A-Z]{{16}}
                | xox[abeprs]-[\w-]{{10,255}}
            )"""
        ),
        "<token>",
    ),
    _Rule(("eyj",), re.compile(_EDGE + r"eyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{8,4000}"), "<token>"),
    _Rule(
        ("bearer", "basic"),
        re.compile(
            r"""(?xi) (?<!\w) ( (?: bearer | authorization["']?\s?[:=]\s?["']?basic ) \s{1,4} )
                (?: (?=\D{0,200}\d) [\w.~+/=-]{8,4000} | [\w.~+/=-]{20,4000} )"""
        ),
        r"\1<token>",
    ),
    _Rule(
        ("token", "secret", "passw", "key", "credential", "sig=", "signature=", "auth="),
        re.compile(
            r"""(?x) (?<![A-Za-z0-9_]) (
                (?: [A-Z0-9_]{0,60}?
                    (?: TOKEN | SECRET | PASSWORD | PASSWD | (?:API|ACCESS|PRIVATE)_?KEY | CREDENTIALS? )
                | (?i: passw(?:or)?d | (?:client_)?secret | api[_-]?key | (?:access|auth|refresh)[_-]?token )
                | (?<=[?&]) (?: token | key | sig | signature | auth ) )
                ["']? \s? [=:] \s? ["']? ) [^\s"',;&<>]{4,4000}"""
        ),
        r"\1<token>",
    ),
    _Rule(("://",), re.compile(r"""(?<=://)(?!git@)[^\s/@"'<>]{1,300}@"""), "<token>@"),
    _Rule(
        ("@",),
        re.compile(
            r"""(?x) (?<![\w.+-]) (?!git@) \w[\w.+-]{0,63} @ (?:[A-Za-z0-9-]{1,63}\.){1,8}
                (?! (?:so|py|js|json|cpp|hpp)\b ) [A-Za-z]{2,24} (?![\w-]|\.\w)"""
        ),
        lambda match: _label("email", match[0]),
    ),
)  # fmt: skip

#: Home folders of any user, on Linux and macOS and on Windows.
_HOMES = (
    re.compile(
        r"""(?x) (?: (?<![\w./-]) | (?<=-[ILB]) | (?<=[\d\[]m) | (?<=\\[nrt]) )
            (?P<before> /{0,2} | (?:/[\w.-]{1,64}){1,4}? ) /(?:home|Users)/
            (?! (?:conda|jenkins|jenkins-slave|linuxbrew|Shared)/ )"""
        + _NAME
    ),
    re.compile(
        r"""(?x) (?<![A-Za-z]) (?P<before>) [A-Za-z]:[\\/]{1,2}(?i:Users)[\\/]{1,2}
            (?! (?:Public|Default|All[ ]Users)[\\/] )
            (?P<name> [^\W_][^\\/:*?"'<>|\r\n\t]{0,63}(?=[\\/]) | \w[\w.-]{0,63} )"""
    ),
)

_FORMS = (
    # MIOpen 3.5 prints the host name before the source file of an error.
    _Rule(
        (".cpp:", ".hpp:"),
        re.compile(
            r"""(?x) (?: (?<=MIOpen[ ]Error:[ ]) | (?<=\][ ]) | (?<=what\(\):[ ][ ]) )
                (?P<host>[A-Za-z0-9][\w.-]{0,253}):(?=[\w./+<>-]{0,300}/[\w.+-]{1,100}\.[ch]pp:\d)"""
        ),
        lambda match: f"{_label('host', match['host'])}:" if _is_identifying(match["host"]) else match[0],
    ),
    _Rule(("/home/", "/users/"), _HOMES[0], _foreign_home),
    _Rule((":\\users", ":\\\\users", ":/users"), _HOMES[1], _foreign_home),
    _Rule(
        ("pytest-of-",),
        re.compile(r"(?<=pytest-of-)" + _NAME),
        lambda match: _label("user", match["name"]) if _is_identifying(match["name"]) else match["name"],
    ),
    # USER@HOST in a shell prompt, in a path for scp, or in the version of an OS kernel.
    _Rule(
        ("@",),
        re.compile(
            r"""(?x) (?<![\w.+/@-]) (?!git@) (?P<user>[A-Za-z_][\w.+-]{0,63})
                @ (?P<host>[A-Za-z0-9][\w.-]{0,252}) (?= :[~/] | \)[ ]\( )"""
        ),
        _account,
    ),
    _Rule(
        ("gpu-", "mig-"),
        re.compile(rf"{_EDGE}(?P<before>(?:GPU|MIG)-)(?P<uuid>{_HEX}{{8}}(?:{_HEX}|-){{0,28}})(?![\w-])"),
        _uuid,
    ),
    _Rule(
        ("unique", "serial"),
        re.compile(
            rf"""(?x) (?P<before> (?i: unique[ _]?id | asic[ _]?serial ) ["'\s:=]{{1,40}} )
                (?P<uuid> 0[xX]{_HEX}{{6,16}} | {_HEX}{{16}} | \d{{15,20}} ) {_END}"""
        ),
        _uuid,
    ),
    _Rule(
        ("machine", "boot"),
        re.compile(
            rf"(?P<before>(?i:machine|boot)[-_ ]?(?i:id)[\"'\s:=]{{1,8}})(?P<uuid>{_HEX}{{32}}){_END}"
        ),
        _uuid,
    ),
    _Rule(
        ("-",),
        re.compile(rf"{_EDGE}(?P<before>)(?P<uuid>{_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}){_END}"),
        _uuid,
    ),
    # A MAC address, which must not be part of a longer row of bytes. With dashes, a letter is required,
    # because digits with dashes can be a date and time.
    _Rule(
        (":", "-"),
        re.compile(
            rf"""(?x) {_EDGE} (?<! \b{_HEX}{{2}}[:-] )
                (?: {_HEX}{{2}} (?: :{_HEX}{{2}} ){{5}}
                | (?=[0-9-]{{0,16}}[A-Fa-f]) {_HEX}{{2}} (?: -{_HEX}{{2}} ){{5}} )
                (?! [^\W_] | [:-]{_HEX}{{2}}\b )"""
        ),
        _mac,
    ),
    # An IPv6 address in short form. A typical first group is required, because C++ names also contain "::".
    _Rule(
        ("::",),
        re.compile(
            rf"""(?x) {_EDGE} (?<!::) (?: [23]{_HEX}{{3}} | [fF][cCdD]{_HEX}{{2}} | [fF][eE][89abAB]{_HEX} )
                (?: :{_HEX}{{1,4}} ){{0,6}} :: (?: {_HEX}{{1,4}} (?: :{_HEX}{{1,4}} ){{0,6}} )? (?!\w|:\w)"""
        ),
        _ip6,
    ),
    # An IPv6 address in full form. A group of at least three digits is required, because two digits between
    # colons can be a byte.
    _Rule(
        (":",),
        re.compile(
            rf"""(?x) {_EDGE} (?<!{_HEX}:) (?= [0-9A-Fa-f:]{{0,36}}{_HEX}{{3}} )
                {_HEX}{{1,4}} (?: :{_HEX}{{1,4}} ){{7}} (?! [^\W_] | :{_HEX} )"""
        ),
        _ip6,
    ),
    _Rule((".",), re.compile(_EDGE + r"(?<!\.)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\d|\.\d)"), _ip4),
    _Rule(
        ("serial", "s/n"),
        re.compile(
            r"""(?x) (?P<before> \b (?i: serial(?:[ _-]?(?:number|num|no))? | S/N )
                    ["']?\s{0,4}[:=]\s{0,30}["']? )
                (?P<serial> (?=[A-Z-]{0,30}\d) [A-Z0-9][A-Z0-9-]{5,40} ) (?![\w:/.])"""
        ),
        lambda match: match["before"] + _label("serial", match["serial"]),
    ),
)  # fmt: skip
