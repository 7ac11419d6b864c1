"""Redaction: what identifies this user, this machine or anybody else is replaced, everything else stays."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.text import redact
from rocmprobe.text.tables import rows

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
#: Lines with marks around their identifiers.
LINES = [
    line.replace("\\x1b", "\x1b")
    for line in Path(__file__).with_name("identifiers.txt").read_text("utf-8").splitlines()
    if "⟦" in line
]
#: What identifies somebody in the logs of public issues.
IDENTIFYING = re.compile(
    r"/home/\w+|[A-Z]:\\{1,2}Users\\{1,2}\w+|/media/USER|(?<=:\d\d )[\w-]+(?= kernel:)"
    r"|(?<=\+00:00 )\w+(?= kernel:)|(?:(?<=Error: )|(?<=\] ))[\w-]+(?=:/)"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
)
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
USER, HOME, HOST = "melinda", "/home/melinda", "workhorse"
GPU = "95a1ca7691e7c391"
HARMLESS = (
    "melindas are many and workhorses strong",
    "RuntimeError: miopenStatusUnknownError",
    "conv2d-fp32-n2-c16-i28x28-k32-f3x3-p1-bias",
    "cuda:0/gemm-only/convolution/conv2d-fp32-n1-c4-i8x8-k4-f3x3/bwd-weights",
    "AMD Radeon RX 5600 XT (0x731f, revision 0xca) at 0000:0b:00.0, gfx1010:xnack-",
    "HSA_OVERRIDE_GFX_VERSION=10.3.0",
    "ROCm 5.2.3.1, 5.2.3.1-66, driver 24.5.2.0, MIOpen 3.4.0, 2.11.0.50203-109, VBIOS 32.00.00.15",
    "nvidia-curand-cu12==10.3.2.106 nvidia_cudnn_cu12-9.1.0.70-py3-none-any.whl cudnn 8.9.2.26",
    "Linux 5.15.153.1-microsoft-standard-WSL2",
    "listening on 127.0.0.1:29500, 0.0.0.0:80 and [::1]:22, netmask 255.255.255.0",
    "MIOpen(HIP): Error [c10::Error] roc::Device::callbackQueue at /MIOpen/src/sqlite_db.cpp:212 dead::beef",
    "  Uuid:                    GPU-XX",
    "  Uuid:                    CPU-XX",
    "Serial Number: N/A",
    "Unique ID: 0x0",
    "usb usb1: SerialNumber: 0000:00:14.0",
    "serial8250: ttyS0, Serial: 8250/16550 driver, AMD_SERIALIZE_KERNEL=3",
    "[  12.345678] amdgpu 0000:0b:00.0: [gfxhub] page fault (src_id:0 ring:24 vmid:3 pasid:32769)",
    "00:1a:2b:3c:4d:5e:6f:70 00 1a 2b 3c 4d 5e",
    "0011:2233:4455:6677:8899:aabb:ccdd:eeff:0011",
    "run of 20-11-20-14-03-11, 2026-11-20T14:03:11Z",
    "link/ether 00:00:00:00:00:00 brd ff:ff:ff:ff:ff:ff",
    "md5 d41d8cd98f00b204e9800998ecf8427e",
    "TOKENIZERS_PARALLELISM=true max_tokens: 512 tokens=77 task-0123456789abcdef0123",
    "git@github.com:ROCm/MIOpen memcpy@GLIBC_2.14 (malloc@plt)",
    "https://github.com/ROCm/MIOpen#installing-miopen-kernels-package https://example.org/home/index.html",
    "src/home/page.py /homestead/x /root/driver/MLOpen/src/sqlite_db.cpp",
    "/home/jenkins/workspace/x /home/conda/feedstock_root/y",
    "",
)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    for name in ("LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME", "COMPUTERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("HOME", HOME)
    monkeypatch.setattr("socket.gethostname", lambda: HOST)
    forget()
    yield
    forget()


def forget():
    for each in vars(redact).values():
        getattr(each, "cache_clear", lambda: None)()


def text(line):
    return redact.redacted({"log": line})["log"]


def generic(line):
    """A placeholder's label depends on the machine."""
    return re.sub(r"<([a-z]+)-[0-9a-f]{5}>", r"<\1-n>", text(line))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/home/melinda/.config/miopen/gfx1010_20.udb", "<home>/.config/miopen/gfx1010_20.udb"),
        ("cannot open '/home/melinda'", "cannot open '<home>'"),
        (
            "/mnt/disk/home/melinda/x and C:\\Users\\melinda\\x",
            "/mnt/disk/home/<user>/x and C:\\Users\\<user>\\x",
        ),
        ("melinda is not in the group render", "<user> is not in the group render"),
        ("/tmp/pytest-of-melinda/0 /tmp/comgr_melinda", "/tmp/pytest-of-<user>/0 /tmp/comgr_<user>"),
        ("MIOpen Error: workhorse: No device", "MIOpen Error: <host>: No device"),
        ("Workhorse.lan.example.net is up.", "<host> is up."),
        ("ssh melinda@workhorse:/home/melinda/model.py", "ssh <user>@<host>:<home>/model.py"),
        ("\x1b[31mmelinda\x1b[0m b'x\\nmelinda' %2Fmelinda", "\x1b[31m<user>\x1b[0m b'x\\n<user>' %2F<user>"),
    ],
)
def test_own_names_are_replaced(line, expected):
    assert text(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-I/home/alice/include, /home/alice", "-I<home-n>/include, <home-n>"),
        ("/mnt/c/Users/Alice/x C:\\Users\\Alice B\\AppData", "/mnt/c<home-n>/x <home-n>\\AppData"),
        ("alice@tower:~/src$ make", "<user-n>@<host-n>:~/src$ make"),
        ("root@tower:/# make", "root@<host-n>:/# make"),
        ("Linux version 6.1.0 (alice@tower) (gcc 12)", "Linux version 6.1.0 (<user-n>@<host-n>) (gcc 12)"),
        ("Alice <alice.b@mail.example.org>", "Alice <<email-n>>"),
        ("192.168.1.7, 10.0.0.5:22 203.0.113.9.", "<ip-n>, <ip-n>:22 <ip-n>."),
        ("tcp://1.2.3.4/x server 5.2.3.1 1.2.3.4:29500", "tcp://<ip-n>/x server <ip-n> <ip-n>:29500"),
        ("192.168.0.1-192.168.0.9 ::ffff:172.16.0.3", "<ip-n>-<ip-n> ::ffff:<ip-n>"),
        ("[fe80::1%eth0] inet6 2001:db8::5: up", "[<ip-n>%eth0] inet6 <ip-n>: up"),
        ("2001:db8:0:0:0:0:0:5", "<ip-n>"),
        ("ether aa:bb:cc:dd:ee:f0 HWaddr:AA-BB-CC-DD-EE-F1:", "ether <mac-n> HWaddr:<mac-n>:"),
        (f"ROCR_VISIBLE_DEVICES=GPU-{GPU},1", "ROCR_VISIBLE_DEVICES=GPU-<uuid-n>,1"),
        ("GPU-8f3ad1c2-1111-2222-3333-444455556666", "GPU-<uuid-n>"),
        (f"Unique ID: 0x{GPU} 'unique_id': '{GPU}'", "Unique ID: <uuid-n> 'unique_id': '<uuid-n>'"),
        ("root=UUID=2e992352-6f78-4f9b-aa68-1b771d43e2b0", "root=UUID=<uuid-n>"),
        ("machine-id: 3d1219c7c4c5404aaa1f6d2a48adfda4", "machine-id: <uuid-n>"),
        ('"Serial Number": "692024000810"', '"Serial Number": "<serial-n>"'),
        ("HF_TOKEN=abcd1234 hf_" + "Ab3" * 10, "HF_TOKEN=<token> <token>"),
        ("ghp_" + "a1B2" * 9 + " sk-proj-" + "a1B2" * 5, "<token> <token>"),
        ("MIOpen Error: rig7:src/hip/a.cpp:157: No", "MIOpen Error: <host-n>:src/hip/a.cpp:157: No"),
        ("Error [Run] rig7.lan:/a/b.cpp:9: x", "Error [Run] <host-n>:/a/b.cpp:9: x"),
        ("  what():  rig7:/home/alice/a.cpp:9: x", "  what():  <host-n>:<home-n>/a.cpp:9: x"),
        ("AKIAIOSFODNN7EXAMPLE Bearer abc123def456", "<token> Bearer <token>"),
        ("https://me:pw@host.org/x?token=abcd1234&n=1", "https://<token>@host.org/x?token=<token>&n=1"),
    ],
)
def test_forms_of_identifiers_are_replaced(line, expected):
    assert generic(line) == expected


@pytest.mark.parametrize("line", HARMLESS)
def test_everything_else_stays(line):
    assert text(line) == line


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (f"GPU-{GPU}", f"unique_id {int(GPU, 16)}", True),
        ("2001:db8:0:0:0:0:0:5", "2001:DB8::5", True),
        ("AA:BB:CC:DD:EE:F0", "aa-bb-cc-dd-ee-f0", True),
        ("/home/alice/x", "/mnt/home/alice/x", True),
        ("/home/alice/x", "/home/bob/x", False),
        ("192.168.1.7", "192.168.1.8", False),
    ],
)
def test_one_placeholder_for_each_identifier(one, other, same):
    labels = [re.search("<.*>", text(line))[0] for line in (one, other)]
    assert (labels[0] == labels[1]) is same


def test_every_process_uses_the_same_placeholder():
    line = "/home/alice 192.168.1.7 aa:bb:cc:dd:ee:f0"
    program = f"from rocmprobe.text.redact import redacted_text; print(redacted_text({line!r}))"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == text(line)


def test_names_that_are_no_secrets_stay(monkeypatch):
    # What everybody is called is left alone.
    monkeypatch.setenv("USER", "ubuntu")
    monkeypatch.setattr("socket.gethostname", lambda: "localhost.localdomain")
    forget()
    assert text("ubuntu 22.04 on localhost") == "ubuntu 22.04 on localhost"
    assert text("localhost.localdomain") == "<host>"

    # Root has a home and no name.
    monkeypatch.setenv("USER", "root")
    monkeypatch.setenv("HOME", "/root")
    forget()
    assert text("root: /root/.config, /mnt/root/x, /rootfs") == "root: <home>/.config, /mnt/root/x, /rootfs"


def test_names_of_facts_and_variables_say_what_their_values_are():
    data = {
        "board.serial": {"value": "PX12345X", "source": "/sys/x/serial"},
        "gpu0.unique_id": {"value": int(GPU, 16), "source": ""},
        "system.hostname": {"value": "tower", "source": ""},
        "HF_TOKEN": {"value": "correct horse", "source": "environment"},
        "other.serial": {"value": "N/A", "source": ""},
        "cpu.cores": {"value": 2**40, "source": ""},
    }
    found = redact.redacted(data)
    values = {name: re.sub("-[0-9a-f]{5}>", "-n>", str(fact["value"])) for name, fact in found.items()}
    assert values == {
        "board.serial": "<serial-n>", "gpu0.unique_id": "<uuid-n>", "system.hostname": "<host-n>",
        "HF_TOKEN": "<token>", "other.serial": "N/A", "cpu.cores": str(2**40),
    }  # fmt: skip
    assert found["gpu0.unique_id"]["value"] in text(f"GPU-{GPU}")


def test_every_place_of_free_text_is_reached():
    data = {
        "machine": {"facts": {"a": {"value": [f"{HOME}/x", {"deep": HOST}], "source": f"{HOME}/y"}}},
        "trials": [{"log": USER}],
        "outcomes": [{"evidence": [USER, HOST], "attempts": [{"message": HOME}]}],
        "options": {"simulate": f"{HOME}/machine.toml", "folder": HOME},
        f"/home/alice of {GPU}": "",
    }
    found = repr(redact.redacted(data))
    for name in (USER, HOST, "alice"):
        assert name not in found

    # A path as a key is free text.
    assert redact.redacted({"rocm.installs": {"value": {f"/data/{USER}/rocm": "6.2"}}}) == {
        "rocm.installs": {"value": {"/data/<user>/rocm": "6.2"}}
    }


def test_ids_and_words_of_ours_stay(monkeypatch):
    monkeypatch.setenv("USER", "bypass")
    forget()
    data = {
        "id": "cpu/bypass",
        "cases": ["cpu/bypass/copy"],
        "setting": "bypass",
        "timings": {"fwd": 0.5},
        "evidence": [],
        "cus": 36,
        "none": None,
    }
    assert redact.redacted(data) == data


def test_the_census_counts_what_stands_there():
    found = redact.redacted({"log": f"{HOME}/a {HOME}/b 192.168.1.7", "evidence": [f"{USER}@{HOST}:~$"]})
    assert redact.census(found) == {"user": 1, "host": 1, "home": 2, "ip": 1}
    assert redact.census({"redacted": redact.census(found)}) == {}


hexadecimal = st.text("0123456789abcdef", min_size=12, max_size=12)
identifiers = st.one_of(
    st.sampled_from([USER, HOST, HOST.upper(), f"{HOST}.lan", f"{HOME}/model.py"]),
    st.from_regex(r"\A/home/[a-z][a-z0-9]{5,8}\Z"),
    st.ip_addresses(v=4, network="192.168.0.0/16").map(str),
    st.ip_addresses(v=4, network="203.0.113.0/24").map(str),
    st.ip_addresses(v=6, network="2001:db8::/32").map(lambda address: address.exploded),
    st.ip_addresses(v=6, network="fe80::/64").map(str),
    hexadecimal.map(lambda digits: ":".join(re.findall("..", "a" + digits[1:]))),
    hexadecimal.map(lambda digits: f"GPU-{GPU[:4]}{digits}"),
    st.uuids().map(str),
    st.text("0123456789abcdefABCDEF", min_size=30, max_size=36).map(lambda digits: f"ghp_{digits}"),
    st.from_regex(r"\A[a-z]{6,9}@[a-z]{4,9}\.(org|com|de)\Z"),
)
before = st.sampled_from(["", " ", "\n", "'", "(", "[", "=", ": ", "\\n", "\x1b[1m", "x ", "in "])
after = st.sampled_from(["", " ", "\n", "'", ")", "]", ",", ". ", ": ", "\\n", "\x1b[0m", " x"])


@given(st.lists(st.tuples(before, identifiers, after), min_size=1, max_size=4))
def test_no_identifier_survives_and_redacting_twice_changes_nothing(planted):
    once = text(" ".join(map("".join, planted)))
    for _, identifier, _ in planted:
        assert identifier not in once
    assert text(once) == once


@given(st.lists(st.sampled_from(HARMLESS) | st.tuples(before, identifiers, after).map("".join), max_size=6))
def test_harmless_lines_stay_among_others(lines):
    found = text("\n".join(lines))
    for line in lines:
        if line in HARMLESS:
            assert line in found


@given(st.text() | st.text("<->ab12:./@\\= \nuserhomip"))
def test_any_text_is_stable(line):
    once = text(line)
    assert text(once) == once


def several(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)


@given(st.recursive(PLAIN, several))
def test_json_without_names_is_left_alone(data):
    if not any(name in repr(data) for name in (USER, HOST)):
        assert redact.redacted(data) == data


@pytest.mark.thorough
@pytest.mark.parametrize(
    "piece",
    [
        "a", "0", " ", "-", "1.", "a.", "ab:", "::", "/a", " /a", "/home/", "a@", "a.a@a.", "TOKEN", "A_",
        "://", "serial:  ", "unique id:", "bearer ", "eyJaaaaaaaaaaaaa.", "GPU-", "fd00:", "C:\\Users\\",
        "\\n", "workhorse.a", "-cu1", "1.1.1.1 ", "melinda", "authorization:basic ", "12345678-1234-",
        "MIOpen Error: aaa:a/.cpp:", "MIOpen Error: ", "-----BEGIN PRIVATE KEY-----", "--password ", "curl ",
        "hostname: a ", "Nov 29 08:15:11 a\n", "-rw-r--r-- 1 a a ", "cookie: a=", "ssh a ", "a.lan.",
    ],
)  # fmt: skip
def test_a_long_log_of_anything_is_done_with(piece):
    """Nothing is timed: a pattern that backtracks would take days."""
    line = piece * (300_000 // len(piece))
    assert text(line + "!").endswith("!")


def forms():
    return [form for key in ("secret", "identifier") for form in rows("identifiers", key, redact._Form)]


@pytest.mark.parametrize("form", forms())
def test_every_form_finds_its_line_and_nothing_else(form):
    placeholder = "<[a-z]+(?:-[0-9a-f]{5})?>"
    expected = placeholder.join(map(re.escape, re.split("⟦.*?⟧", form.yes, flags=re.DOTALL)))
    assert re.fullmatch(expected, text(unmarked(form.yes)))
    assert any(trigger in form.yes.lower() for trigger in form.triggers)
    assert text(form.no) == form.no


def unmarked(line):
    return line.replace("⟦", "").replace("⟧", "")


@pytest.mark.parametrize("line", LINES)
def test_no_identifier_of_the_list_survives(line):
    found = text(unmarked(line))
    assert [each for each in re.findall("⟦(.*?)⟧", line) if each in found] == []
    assert text(found) == found


@pytest.mark.skipif(not CORPUS.exists(), reason="the logs of public issues are not beside this checkout")
def test_ordinary_lines_of_public_issues_stay():
    records = (line for path in CORPUS.glob("*.jsonl") for line in path.open(encoding="utf-8"))
    logs = [json.loads(record)["log"] for record in records]
    lines = {line for log in logs for line in log.split("\n") if line.strip()}
    ordinary = {line for line in lines if not IDENTIFYING.search(line)}
    assert len(ordinary) > 900
    assert [line for line in sorted(ordinary) if text(line) != line] == []
    # The other lines lose nothing but the identifiers.
    for line in lines - ordinary:
        assert len(IDENTIFYING.sub("", line)) <= len(re.sub(r"<[a-z]+-[0-9a-f]{5}>", "", text(line)))
