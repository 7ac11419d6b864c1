"""Facts about a log: given by the owner of the log, or printed in the log.

The module reads the output of these programs: ``torch.utils.collect_env``, ``pip list``, ``rocminfo``,
``uname``, ``lspci``, MIOpen (``Raw device name: gfx1031``, names of its database files), rocBLAS, llama.cpp,
ollama, and a shell's command line (``HSA_OVERRIDE_GFX_VERSION=10.3.0 python ..``). A target that a ROCm
program prints is the effective ISA. These programs get the target from the runtime, which applies
HSA_OVERRIDE_GFX_VERSION.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple, Optional

from rocmprobe.knowledge import gpus
from rocmprobe.knowledge.compatibility import FIRST, first_device
from rocmprobe.knowledge.gpus import OVERRIDE
from rocmprobe.knowledge.stacks import rocm_of
from rocmprobe.model.results import BadInput, Machine
from rocmprobe.runtimes.kfd import isa_name
from rocmprobe.text.log import Log

EXITS = ("exception", "segv", "abort", "hang", "none")
#: Keys to ignore in a file of facts. A file that is also a recorded report contains these keys.
_OF_A_REPORT = frozenset((
    "id", "url", "title", "year", "log", "layer", "cause", "fix", "confirmed", "notes", "audit",
    "log_quality",
))  # fmt: skip
#: Targets that are common overrides. A log that shows one of these targets can come from another chip.
_PRETENDED = frozenset(("gfx900", "gfx1030", "gfx1100", "gfx1101", "gfx1102"))

_VARIABLE = (
    r"(?:HSA|HIP|ROCR|ROC|ROCM|MIOPEN|PYTORCH|TORCH|AMD|ROCBLAS|HIPBLASLT|HIPRTC|HCC|GPU|HSAKMT|TENSILE|OLLAMA"
    r"|AMDGPU|MLIR)_[A-Z0-9_]{2,60}|CUDA_VISIBLE_DEVICES|LD_LIBRARY_PATH|LD_PRELOAD|AMD_SERIALIZE_KERNEL"
)
#: A set variable: NAME=value, "NAME": "value", environ["NAME"] = "value", or, after a command of ``_SETS``,
#: NAME value.
_ASSIGNED = re.compile(
    rf"""(?x) (?<![\w$\{{,.-]) (?P<quote>["'`])? (?P<name>(?!\w+_(?:STATUS|ERROR)_){_VARIABLE}) (?:["'`]\]?)?
        (?: (?<!["'`\]]) = | \s?=\s?(?=["']) | (?P<colon>:)\s?(?![A-Z_\d]+[:=]) | (?<=\]) \s?=\s?
          | (?<=\w) \s+ (?=[\d'"]) (?P<blank>) )
        (?: "(?P<double>[^"]{{0,400}})" | '(?P<single>[^']{{0,400}})'
          | (?P<bare>[^\s"'`;&|<>()\],}}]{{1,400}}) )"""
)
_TRIGGER = re.compile(r"[A-Z]_[A-Z]|_DEVICES")
#: Words that recommend the next variable, e.g. "try". A recommended variable does not count as set.
_ADVICE = re.compile(
    r"""(?xi) (?: passing | setting | consider(?:ing)? | try(?:ing)? | us(?:e|ing) | by | with | via
        | please | or | e\.g\. | example | you[ ](?:can|may|should)[ ](?:also[ ])?set | to[ ]set | need[ ]to
        | should ) \s+ (?:the[ ])? ["'`(]? $"""
)
_SETS = re.compile(r"(?i)(?:^|\s)(?:ENV|set -gx|set -x|setenv)\s+$")
_LOOK_BACK = 40
#: Text before NAME=value, e.g. "-D", if NAME is a macro for a compiler or assembler. A macro does not count
#: as a set variable.
_DEFINES = re.compile(r"(?:-D|-defsym,|,)\s?$")


@dataclass(frozen=True)
class Facts:
    """Facts about the machine and the run.

    Values have the form in which people write them, such as "5.2.3 wheel", "2.0.x+rocm5.4.2" and "gfx103x".
    ``torch_targets`` and ``rocblas_targets`` are the targets for which the installed library holds code,
    separated by blanks or commas.
    """

    gpu: Optional[str] = None
    true_gfx: Optional[str] = None
    effective_gfx: Optional[str] = None
    rocm: Optional[str] = None
    torch: Optional[str] = None
    torch_targets: Optional[str] = None
    rocblas_targets: Optional[str] = None
    os: Optional[str] = None
    first_gpu: Optional[str] = None
    env: Mapping[str, str] = field(default_factory=dict)
    exit: Optional[str] = None


_NAMES = tuple(field.name for field in fields(Facts))


def known(facts: Facts) -> dict[str, Any]:
    """Return the known facts by name."""
    return {name: value for name in _NAMES if (value := getattr(facts, name))}


class _Print(NamedTuple):
    """Pattern of a line that prints a fact. The named group ``it`` holds the fact.

    ``trigger`` is lower-case text that every matching line contains after conversion to lower case.
    """

    trigger: str
    pattern: re.Pattern[str]


def _prints(*rows: tuple[str, str]) -> tuple[_Print, ...]:
    return tuple(_Print(trigger, re.compile(f"(?i){pattern}")) for trigger, pattern in rows)


_VERSION = r"v?(?P<it>\d{1,2}\.\d{1,5}(?:\.\d{1,6})?"
_TORCH = r"[`\"']?(?P<it>\d\.\d{1,2}(?:\.[\dx]+)?(?:\w*(?:[.+-]\w+)*)?)"
#: Excludes the torch version for which an extension was built, because another version can be installed.
_NO_OTHER = r"(?<!built for )(?<!built for: )(?<!built with )(?<!requires )"
#: The most reliable patterns come first: lines whose purpose is to show the version.
_TORCH_PRINTS = _prints(
    ("pytorch version", rf"pytorch version\s*[:=]\s*{_TORCH}"),
    ("you have", rf"pytorch \d\S{{2,40}} [^(]{{0,60}}\(you have {_TORCH}"),
    ("you have", rf"you have (?:py)?torch {_TORCH}"),
    ("torch", rf"{_NO_OTHER}(?<![\w-])torch(?:\.__version__)?(?: version)?\s*(?:==|=|:)\s*{_TORCH}"),
    ("torch ", rf"^torch\s+{_TORCH}(?:\s|$)"),
    ("pytorch", rf"{_NO_OTHER}(?<![\w/-])pytorch(?: version)?\s*[:=]*\s*{_TORCH}"),
    ("torch-", rf"(?<![\w-])torch-{_TORCH[:-1].replace('[.+-]', '[.+]')})(?:-cp|\.dist-info)"),
    ("pytorch_", r"rocm/pytorch\S*pytorch_(?:release[_-])?(?P<it>\d\.\d{1,2}(?:\.\d)?)"),
    ("tensorflow-rocm", r"(?P<it>tensorflow-rocm(?:\s+|==)\d\.\d{1,2}(?:\.\d+)*)"),
)
_ROCM_PRINTS = _prints(
    ("rocm", rf"(?<![\w+/-])rocm(?:[ _-]?version)?\s*[:=]\s*[`\"']?{_VERSION})"),
    ("opt/rocm-", rf"/opt/rocm-{_VERSION})"),
    ("rocm-core", rf"rocm-core(?:/\S*)?\s+(?:amd64\s+)?{_VERSION})"),
    ("rocm/", rf"rocm/[\w-]+:(?:latest-)?(?:rocm-?)?{_VERSION})"),
    ("rocm_sdk", rf"rocm[_-]sdk[_-]?\w*(?:==|-|\s+){_VERSION}\w*)"),
    ("hip runtime version", rf"hip runtime version\s*[:=]\s*{_VERSION})"),
    ("hip version", rf"hip version\s*[:=]?\s*{_VERSION})"),
    ("hipcc version", rf"hipcc version\s*{_VERSION})"),
    ("rocm used to build pytorch", rf"rocm used to build pytorch\s*:\s*{_VERSION})"),
    ("+rocm", rf"\+rocm{_VERSION}\w*)"),
    ("whl/", rf"whl/(?:nightly/|test/)?rocm{_VERSION})"),
)
_OS_PRINTS = _prints(
    ("wsl", r"(?P<it>\d\.\d[\w.-]*microsoft-standard-WSL2)"),
    ("os:", r"^os\s*:\s*(?P<it>[A-Z][^|]{2,60})"),
    ("pretty_name", r"pretty_name=\"?(?P<it>[^\"]{3,60})"),
    ("operating system", r"operating system\s*:\s*(?P<it>[A-Z][^|]{2,60})"),
    ("description:", r"^description:\s*(?P<it>[A-Z][\w /.()]{3,60})"),
    ("linux version", r"\blinux version (?P<it>\d+\.\d[\w.+-]*)"),
    ("linux", r"^linux \S{1,64} (?P<it>\d+\.\d[\w.+-]*)"),
    (":\\", r"\b[C-Z](?P<it>:\\{1,2}\w[^\s:]{0,200}\\)"),
    (":/", r"(?:^|[\s\"'(])[C-Z](?P<it>:/\w)"),
)
_CARD = (
    r"(?P<it>(?:AMD )?(?:Radeon|Instinct|FirePro)(?: ?\(TM\)|™)?"
    r"(?: (?:Instinct|Pro|RX|AI|VII|Vega|Graphics|XTXH?|XT|GRE|R[579]|HD|Frontier|Edition|OEM|ME|WX|Duo"
    r"|[WV]?\d{2,4}[A-Z]{0,3}|R9700|MI\d{1,3}[A-Z]?)(?![\w]))+)"
)
_GPU_PRINTS = _prints(
    ("marketing name", rf"marketing name\s*:\s*{_CARD}"),
    ("gpu models and configuration", rf"gpu models and configuration\s*:\s*{_CARD}"),
    ("device", rf"device\b.{{0,40}}?{_CARD}"),
    ("[amd/ati]", r"\[AMD/ATI\]\s*(?P<it>[A-Z][\w ]{1,24}\[[^\]]{1,80}\])"),
    ("radeon", r"\bname: (?P<it>\w[\w ]{1,24}\[Radeon [^\]]{1,80}\])"),
    ("radeon", _CARD),
    ("instinct", _CARD),
    ("firepro", _CARD),
    ("rx ", r"(?P<it>\bRX \d{3,4}[SM]?(?: (?:XTX?|GRE|M)\b)?)"),
)
_GFX = r"(?P<it>gfx[0-9]{1,3}[0-9a-f]{2}|gfx[0-9]{3,4})(?![0-9a-wyz])"
_EFFECTIVE_PRINTS = _prints(
    ("name:", rf"^name:\s+{_GFX}"),
    ("amdhsa--gfx", rf"amdhsa--{_GFX}"),
    ("raw device name", rf"raw device name:\s*{_GFX}"),
    ("gcnarchname", rf"gcnarchname\W{{1,4}}{_GFX}"),
    ("gpu arch", rf"gpu arch\s*:\s*{_GFX}"),
    ("device", rf"device \d{{1,2}}\s*:.{{3,60}}{_GFX}"),
    ("compute=gfx", rf"compute={_GFX}"),
    ("gpu_type", rf"gpu_type=\"?{_GFX}"),
    ("models and configuration", rf"gpu models and configuration.{{1,60}}{_GFX}"),
    ("compiling for gfx", rf"generated when compiling for {_GFX}"),
    ("-mcpu=gfx", rf"(?:miopen|comgr|hiprtc).*-mcpu={_GFX}"),
    (
        "db",
        r"\b(?P<it>gfx(?:9[0-9][0-9a-f]|1[0-9]{2}[0-9a-f]|803))[0-9a-f_]{0,4}\.(?:HIP\.|OpenCL\.)?(?:kdb|\w?fdb|u?db)\b",
    ),
    ("major/minor/stepping", r"gfx major/minor/stepping:\s*(?P<it>\d+/\d+/\d+)"),
)
#: Facts from the kernel, which no override changes: KFD's topology, and PCI ids (dmesg, lspci, ollama).
_TRUE_PRINTS = _prints(
    ("gfx_target_version", r"gfx_target_version\s+(?P<it>[1-9]\d{4,5})\b"),
    ("1002:", r"(?:\b|0x)1002:(?:0x)?(?P<it>[0-9a-f]{4})\b"),
)
#: If a log shows several exits, the first exit in this table counts. Many aborts follow a traceback, so
#: "abort" comes before "exception".
_EXIT_PRINTS = {
    "segv": (
        "segmentation fault", "sigsegv", "0xc0000005", "access violation", "signal 11", "exitcode: -11",
        "exit code -11", "exit code 139", "exit code: 139", "exited with code 139", "exit status 139",
    ),
    "abort": (
        "aborted", "sigabrt", "iot instruction", "terminate called", "0xc0000409", "signal 6", "signal: 6",
        "exitcode: -6", "exit code -6", "exit code 134", "exit code: 134", "exited with code 134",
        "exit status 134", "aborting with error", "hw exception by gpu", "memory access fault by gpu",
        "rocblas error: cannot read", "hiperrornobinaryforgpu: unable", "hiperrornobinaryforgpu: coudn",
    ),
    "hang": ("gpu reset begin", "mes failed to respon", "is hung!", " timeout, signaled seq"),
    "exception": ("traceback (most recent", "runtimeerror: ", "outofmemoryerror: ", "assertionerror: "),
}  # fmt: skip


class _Texts:
    def __init__(self, log: Log) -> None:
        self.lines = [(line.text, line.text.lower()) for line in log.lines]
        self.whole = "\n".join(lowered for _, lowered in self.lines)

    def all(self, prints: Iterable[_Print]) -> Iterator[str]:
        for trigger, pattern in prints:
            if trigger in self.whole:
                for text, lowered in self.lines:
                    if trigger in lowered and (match := pattern.search(text)):
                        yield match["it"].rstrip(".,")

    def first(self, prints: Iterable[_Print]) -> Optional[str]:
        return next(self.all(prints), None)


def facts_in(log: Log) -> Facts:
    """Return the facts that a log prints about its machine."""
    texts = _Texts(log)
    return Facts(
        gpu=_tidy(_card(texts.all(_GPU_PRINTS))),
        true_gfx=_chip(texts.all(_TRUE_PRINTS)),
        effective_gfx=_chip(texts.all(_EFFECTIVE_PRINTS)),
        rocm=texts.first(_ROCM_PRINTS),
        torch=_tidy(texts.first(_TORCH_PRINTS) or _pip_show(log)),
        torch_targets=_arch_list(texts),
        os=_system(texts.first(_OS_PRINTS)),
        env=variables_in(text for text, _ in texts.lines),
        exit=next(
            (name for name, words in _EXIT_PRINTS.items() if any(map(texts.whole.__contains__, words))), None
        ),
    )


_ARCH_LIST = re.compile(
    r"\[(?P<list>'gfx\w+'(?:, ?'gfx\w+')*)\]|PyTorch[^.]{0,40} "
    r"supports[^.]{0,60}?(?P<words>gfx\w+(?:[ ,]+gfx\w+)+)"
)


def _arch_list(texts: _Texts) -> Optional[str]:
    if "torch" not in texts.whole and "arch_list" not in texts.whole:
        return None
    match = next((found for text, _ in texts.lines if (found := _ARCH_LIST.search(text))), None)
    return " ".join(re.findall(r"gfx[0-9a-f]+", match[0])) if match else None


def facts_of(given: Mapping[str, Any]) -> Facts:
    """Return facts from a dictionary with the keys of ``Facts``.

    Ignore keys that only recorded reports have, e.g. "title". Raise BadInput for an unknown key, and for a
    value of the wrong type.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OF_A_REPORT:
            continue
        if name not in _NAMES:
            raise BadInput(f"{name!r:.80} is not a fact; the facts are {', '.join(_NAMES)}")
        values[name] = _variables(value) if name == "env" else _word(name, value)
    return Facts(**values)


def _word(name: str, value: Any) -> Optional[str]:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, type(None))):
        raise BadInput(f"{name} is {value!r:.80}; it must be a string or null")
    word = "" if value is None else str(value).strip()
    if not word or word.lower().startswith("unknown"):
        return None
    if name in ("true_gfx", "effective_gfx") and not re.search(r"(?i)gfx\d", word):
        raise BadInput(f"{name} is {word!r:.80}; it must be a target, such as gfx1010 (use gpu for names)")
    if name == "exit" and word not in EXITS:
        raise BadInput(f"exit is {word!r:.80}; it must be one of {', '.join(EXITS)}")
    if name == "first_gpu" and word not in FIRST:
        raise BadInput(f"first_gpu is {word!r:.80}; it must be one of {', '.join(FIRST)}")
    return word


def _variables(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(f"env is {value!r:.80}; it must be an object of names and values")
    for name, setting in value.items():
        if isinstance(setting, bool) or not isinstance(setting, (str, int, float)):
            raise BadInput(f"env: {name!r:.80} is {setting!r:.80}; it must be a string")
    return {str(name): str(setting) for name, setting in value.items()}


def over(first: Facts, second: Facts) -> Facts:
    """Merge two sets of facts. If both know a fact or a variable, ``first`` wins."""
    known = {name: getattr(first, name) or getattr(second, name) for name in _NAMES}
    return Facts(**{**known, "env": {**second.env, **first.env}})


def merge_and_derive(given: Facts, found: Facts) -> Facts:
    """Merge given and found facts, and derive further facts.

    The override in ``env`` gives the effective ISA (not on Windows, whose driver does not read the override).
    The name of the card gives the true ISA, if only one chip is sold under that name. If the true ISA is
    still unknown, the effective ISA becomes the true ISA, except in two cases: an override is set, or the
    effective ISA is a common value of an override (``_PRETENDED``).
    """
    facts = over(given, found)
    env = facts.env
    override = env.get(OVERRIDE) or env.get(f"{OVERRIDE}_0") or env.get(f"{OVERRIDE}_1") or ""
    if (facts.os or "").startswith("Windows"):
        override = ""
    effective = given.effective_gfx or gpus.isa_of_override(override) or found.effective_gfx
    true = given.true_gfx or gfx_of_card(given.gpu) or found.true_gfx or gfx_of_card(found.gpu)
    if true is None and not override and effective and effective not in _PRETENDED:
        true = effective
    rocm = facts.rocm or rocm_of(facts.torch)
    return replace(facts, true_gfx=true, effective_gfx=effective, rocm=rocm)


def _tidy(text: Optional[str]) -> Optional[str]:
    return " ".join(text.split()).rstrip("`\"'.,") if text else None


def _pip_show(log: Log) -> Optional[str]:
    for line, after in zip(log.lines, log.lines[1:]):
        if line.text == "Name: torch" and after.text.startswith("Version: "):
            return after.text[len("Version: ") :]
    return None


def _chip(names: Iterable[str]) -> Optional[str]:
    """Return the first known target in ``names`` that is not only used in processors (APUs).

    If all targets are unknown or only used in processors, return the first target. Return None if ``names``
    has no target.
    """
    targets = [target for name in names if (target := _target(name))]
    for name in targets:
        row = gpus.target(name)
        if row is not None and row.apu is not True:
            return name
    return targets[0] if targets else None


def _target(name: str) -> Optional[str]:
    """Return the target that a program prints as "gfx1030", "10/3/0", "100300" or as the PCI id "73bf"."""
    if name.lower().startswith("gfx"):
        return name.lower()
    if "/" in name:
        return gpus.isa_of_override(name.replace("/", "."))
    return gpus.gfx_of(name) if len(name) == 4 else isa_name(int(name))


def _card(names: Iterable[str]) -> Optional[str]:
    listed = list(names)
    for name in listed:
        row = gpus.target(gfx_of_card(name))
        if row is not None and row.apu is not True:
            return name
    return listed[0] if listed else None


def _system(found: Optional[str]) -> Optional[str]:
    if found is None:
        return None
    if found.startswith(":"):
        return "Windows"
    if "microsoft" in found:
        return f"WSL2 ({found})"
    return f"Linux {found}" if found[0].isdigit() else " ".join(found.split())


def variables_in(texts: Iterable[str]) -> dict[str, str]:
    """Return the variables that these lines set, each with its last value."""
    found: dict[str, str] = {}
    for text in texts:
        if not _TRIGGER.search(text):
            continue
        for match in _ASSIGNED.finditer(text):
            before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
            if _DEFINES.search(before) or _ADVICE.search(before):
                continue
            if match["blank"] is not None and not _SETS.search(before):
                continue
            if match["colon"] and not (
                match["quote"] or before in ("", "- ") or "map[" in text[: match.start()]
            ):
                continue
            value = match["double"] or match["single"] or match["bare"]
            if value:
                found[match["name"]] = value
    return found


def gfx_of_card(name: Optional[str]) -> Optional[str]:
    """Return the target of a card ("Navi 10 [Radeon RX 5700]"), or None if the name is ambiguous."""
    if not name or re.search(r"(?i)nvidia|geforce|quadro|tesla", name):
        return None
    written = re.search(r"\bgfx[0-9]{3,4}[a-f]?\b|\bgfx[0-9]{2,3}[0-9a-f]\b", name)
    if written:
        return written[0]
    chip, _, products = name.partition("[")
    targets = _chips().get(chip.strip().lower()) if products else None
    words = _model(products.partition("/")[0] or name).split()
    if not targets and words:
        targets = _of_model(" ".join(words))
    while not targets and (len(words) > 2 or any(map(str.isdigit, "".join(words[:-1])))):
        words.pop()
        targets = _of_model(" ".join(words))
    return next(iter(targets)) if targets and len(targets) == 1 else None


def _of_model(model: str) -> frozenset[str]:
    begun = (targets for name, targets in _cards().items() if name.startswith(f"{model} "))
    return _cards().get(model) or frozenset().union(*begun)


def _model(name: str) -> str:
    name = re.sub(
        r"\(.*?\)|™|®|\[.*|\b(?:amd|radeon|instinct|graphics|gpu|ati|series|class|like)\b", " ", name.lower()
    )
    name = re.sub(r"\bmi[- ](?=\d)", "mi", name)
    return " ".join(re.sub(r"\b(rx|pro|r[579])(?=\d)", r"\1 ", name).split())


@lru_cache(maxsize=1)
def _cards() -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for target in gpus.all_targets():
        for names in target.names.values():
            for name in names.split(" / "):
                model = _model(name)
                for written in {model, model.removeprefix("rx ")}:
                    found[written] = found.get(written, frozenset()) | {target.gfx}
    return found


@lru_cache(maxsize=1)
def _chips() -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for target in gpus.all_targets():
        for chip in re.split(r"[,/] ?", target.chip.lower()):
            found[chip] = found.get(chip, frozenset()) | {target.gfx}
    return found


def facts_of_machine(machine: Machine) -> Facts:
    """Return the facts of a machine: its software and the first AMD GPU that programs see."""
    system = (machine.value("os.name"), machine.value("kernel.release"))
    words: dict[str, Any] = {
        "rocm": machine.value("rocm.version") or machine.value("hip.version"),
        "torch": machine.value("torch.version"),
        "os": " ".join(str(value) for value in system if value),
        "first_gpu": first_device(machine),
        "torch_targets": " ".join(machine.value("torch.targets") or ()),
        "rocblas_targets": " ".join(machine.value("rocblas.targets") or ()),
    }
    for gpu in sorted(machine.amd_gpus, key=lambda each: each.index.value != 0)[:1]:
        words["gpu"] = gpu.name.value
        words["true_gfx"] = gpu.native_isa.value
        words["effective_gfx"] = gpu.effective_isa.value
    env = {name: str(fact.value) for name, fact in machine.variables.items() if fact.value is not None}
    return facts_of({"env": env, **{name: str(word) for name, word in words.items() if word}})
