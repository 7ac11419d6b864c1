"""The audit of the data tables, on excerpts in the form of the real files."""

from __future__ import annotations

import functools
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rocmprobe.knowledge import audit
from rocmprobe.knowledge.gpus import all_targets
from rocmprobe.knowledge.solvers import solvers
from rocmprobe.knowledge.stacks import has_code, stacks
from rocmprobe.text.tables import table
from rocmprobe.text.versions import within

MIOPEN = "3.6.1"
VERSION = f"project(MIOpen CXX)\nrocm_setup_version(VERSION {MIOPEN})\n"
ENV_HPP = "#define MIOPEN_DECLARE_ENV_VAR(_name, _type, ...) struct _name;\n"
WHEEL = '<a href="/whl/{0}-cp{1}-cp{1}-{2}.whl#sha256=ab">{0}</a><br/>\n'


def registry() -> str:
    """Return MIOpen's src/solver.cpp as it must be for our table to be right."""
    known = {row.id: row for row in solvers() if within(MIOPEN, row.since, row.until)}
    text = "inline SolverRegistrar::SolverRegistrar(IdRegistryData& registry)\n{\n    uint64_t id = 0;\n"
    for number in range(1, max(known) + 1):
        if number in known:
            name = re.sub(r"^ConvBinWinogradRxSf(\d)x(\d)$", r"ConvBinWinoRxS<\1, \2>", known[number].name)
            algorithm = known[number].family.replace("naive", "Direct")
            name = name.replace("-", ", ")
            text += "    RegisterWithSolver(\n"
            text += f"        registry, ++id, conv::{name}{{}}, miopenConvolutionAlgo{algorithm});\n"
        elif number % 2:
            text += "    ++id; // removed solver ConvOld; its ++id stays\n"
        else:
            text += "    Register(registry,\n             ++id,\n             Primitive::Fusion,\n"
            text += "             fusion::ConvX{}.SolverDbId(),\n             miopenConvolutionAlgoDirect);\n"
    return text + "}\n"


def targets() -> str:
    """Return TheRock's targets as they must be for our tables to be right."""
    of_amd = [stack for stack in stacks() if stack.kind.startswith("amd-")]
    built = {row["library"]: row["gfx"] for row in table("compatibility")["library"] if not row["until"]}
    text = "function(therock_add_amdgpu_target gfx_target product_name)\nendfunction()\n"
    for row in all_targets():
        if any(has_code(stack, row.gfx) for stack in of_amd):
            family = "igpu-all" if row.apu else "dgpu-all"
            lacks = [name for name in ("rocBLAS", "hipBLASLt") if row.gfx not in built[name.lower()]]
            excluded = "".join(f"    {name} # an issue\n" for name in lacks)
            text += f'therock_add_amdgpu_target({row.gfx} "{row.chip}" FAMILY {family}\n'
            text += f"  EXCLUDE_TARGET_PROJECTS\n{excluded})\n"
    return text


@pytest.fixture
def run(tmp_path, capsys):
    def run(**files: str) -> tuple[int, list[str]]:
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text, "utf-8")
        code = audit.main([str(tmp_path)])
        return code, capsys.readouterr().out.splitlines()

    return run


def test_tables_that_agree(run):
    code, lines = run(solver__cpp=registry(), CMakeLists__txt=VERSION, targets__cmake=targets())
    count = sum(within(MIOPEN, row.since, row.until) for row in solvers())
    assert (code, len(lines)) == (0, 1)
    assert lines[0].startswith(f"MIOpen {MIOPEN}, {count} solvers, ")
    assert lines[0].endswith(" targets: 0 rows disagree")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "conv::ConvAsm3x3U{}", "conv::ConvAsm3x3U2{}",
            ["ConvAsm3x3U: ours: in MIOpen 2 to now; theirs: not in 3.6.1",
             "ConvAsm3x3U2: ours: no row; theirs: id 1, Direct"],
        ),
        (
            "conv::fft{}, miopenConvolutionAlgoFFT", "conv::fft{}, miopenConvolutionAlgoGEMM",
            ["fft: ours: id 34, FFT; theirs: id 34, GEMM"],
        ),
        # A removed solver, whose id another one gets.
        (
            "conv::ConvHipDirectFwd11x11{}", "conv::ConvOclDirectFwd11x11{}",
            ["ConvOclDirectFwd11x11: ours: in MIOpen 2 to 3.5.1; theirs: in 3.6.1, id 8",
             "ConvHipDirectFwd11x11: ours: in MIOpen 3.5.2 to now; theirs: not in 3.6.1"],
        ),
        ("conv::GemmFwdRest{}", "conv::ConvHipImplicitGemmNewXdlops{}",
         ["GemmFwdRest: ours: in MIOpen 2 to now; theirs: not in 3.6.1"]),
    ],
)  # fmt: skip
def test_solvers(run, old, new, expected):
    code, lines = run(solver__cpp=registry().replace(old, new), CMakeLists__txt=VERSION)
    assert code == 1
    assert lines[:-1] == [f"solvers.toml: {line}" for line in expected]


def test_a_class_with_a_name_of_its_own(run):
    hpp = """struct MIOPEN_INTERNALS_EXPORT Renamed final : ConvSolver
{
    // Keeps its records.
    const std::string& SolverDbId() const override
    {
        static const std::string id{"ConvAsm3x3U"};
        return id;
    }
};
"""
    cpp = registry().replace("conv::ConvAsm3x3U{}", "conv::Renamed{}")
    assert run(solver__cpp=cpp, solvers__hpp=hpp, CMakeLists__txt=VERSION)[0] == 0


def test_variables(run):
    code, lines = run(
        CMakeLists__txt=VERSION,
        one__cpp="MIOPEN_DECLARE_ENV_VAR_BOOL(MIOPEN_DEBUG_NEW)\n"
        "MIOPEN_DECLARE_ENV_VAR_UINT64(MIOPEN_FIND_SKIP_PCT, 150)\nMIOPEN_DECLARE_ENV_VAR_STR(HOME)\n"
        "MIOPEN_DECLARE_ENV_VAR_STR(MIOPEN_DEBUG_CONV_FFT)\n"
        "MIOPEN_DECLARE_ENV_VAR_BOOL(\n    MIOPEN_DEBUG_OPENCL_CONVOLUTIONS)\n",
        env_variables__rst="    * - | ``MIOPEN_WRITTEN``\n        | Text.\n      - | 0: Disable\n",
        debug__rst="Build with ``MIOPEN_BUILD_OPTION``.\n\n* ``MIOPEN_LISTED=2``: text\n",
    )
    assert code == 1
    assert lines[:-1] == [
        "variables.toml: MIOPEN_DEBUG_CONV_FFT: ours: miopen-bool; theirs: STR",
        "variables.toml: MIOPEN_DEBUG_NEW: ours: no row; theirs: read",
        "variables.toml: MIOPEN_DEBUG_OPENCL_CONVOLUTIONS: ours: until ROCm 7.13; theirs: read in 10.1",
        "variables.toml: MIOPEN_FIND_SKIP_PCT: ours: default 130; theirs: default 150",
        "variables.toml: MIOPEN_LISTED: ours: no row; theirs: read",
        "variables.toml: MIOPEN_WRITTEN: ours: no row; theirs: read",
    ]
    # With the header of the macro, the sources are complete, and a variable that they lack is no longer read.
    gone = "variables.toml: MIOPEN_DEBUG_CONV_GEMM: ours: until now; theirs: not in 10.1"
    assert gone not in lines
    assert gone in run(env__hpp=ENV_HPP)[1]


def test_targets(run):
    text = targets().replace("gfx1010", "gfx1099").replace("    hipBLASLt # an issue\n", "", 1)
    code, lines = run(targets__cmake=text.replace('gfx1011 "Navi 12" FAMILY dgpu', 'gfx1011 "" FAMILY igpu'))
    assert code == 1
    assert {
        "gpus.toml: gfx1099: ours: no row; theirs: Navi 10",
        "gpus.toml: gfx1010: ours: amd_wheels; theirs: no target",
        "gpus.toml: gfx1011: ours: apu False; theirs: apu True",
    } <= set(lines)
    assert any(line.startswith("compatibility.toml: rocblas since ") for line in lines)
    assert any(line.startswith("compatibility.toml: hipblaslt since ") for line in lines)


def test_a_newer_miopen(run):
    code, lines = run(CMakeLists__txt=VERSION.replace(MIOPEN, "99.0.0"))
    assert code == 1
    assert lines[0].startswith("rocm_releases.toml: MIOpen: ours: up to ")
    assert lines[0].endswith("; theirs: 99.0.0")


def pins(kind: str) -> tuple[str, str, list[str]]:
    """Return the newest stack of a kind: its name, its torch, and its versions of Python."""
    stack = next(stack for stack in stacks() if stack.kind == kind)
    return stack.name, stack.torch, [version.replace(".", "") for version in stack.python]


class TestWheels:
    NAME, TORCH, PYTHONS = pins("official")
    LOCAL = TORCH.partition("+")[2]

    def page(self, torch: str, pythons: list[str], platform: str = "manylinux_2_28_x86_64") -> str:
        return "".join(WHEEL.format(f"torch-{torch.replace('+', '%2B')}", each, platform) for each in pythons)

    def test_pins_that_exist(self, run):
        # Builds for CUDA, nightly builds and Python 3.8 do not count.
        others = self.page("99.0+cu130", ["312"]) + self.page(f"99.0.dev20261001+{self.LOCAL}", ["312"])
        page = self.page(self.TORCH, [*self.PYTHONS, "38"]) + others
        assert run(torch__html=page)[0] == 0

    def test_pins_that_are_gone_or_old(self, run):
        code, lines = run(torch__html=self.page(f"99.0+{self.LOCAL}", ["312"]))
        assert code == 1
        assert lines[:-1] == [
            *[f"stacks.toml: {self.NAME}: torch: ours: {self.TORCH}; theirs: no wheel for {system}"
              for system in ("linux", "wsl")],
            f"stacks.toml: {self.NAME}: ours: {self.TORCH}; theirs: 99.0+{self.LOCAL}",
            f"stacks.toml: torch: ours: no row; theirs: 99.0+{self.LOCAL}",
        ]  # fmt: skip

    def test_versions_of_python(self, run):
        code, lines = run(torch__html=self.page(self.TORCH, ["399"]))
        assert code == 1
        assert lines[0].startswith(f"stacks.toml: {self.NAME}: python: ours: ")
        assert lines[0].endswith("; theirs: 3.99")

    def test_a_stack_without_a_wheel_for_windows(self, run):
        name, torch, pythons = pins("amd-stable")
        code, lines = run(torch__html=self.page(torch, pythons, "linux_x86_64"))
        assert code == 1
        assert lines[:-1] == [f"stacks.toml: {name}: torch: ours: {torch}; theirs: no wheel for windows"]


def test_an_address(tmp_path, capsys):
    (tmp_path / "index.html").write_text(WHEEL.format("torch-99.0%2Brocm99.0", 312, "linux_x86_64"), "utf-8")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert audit.main([f"{address}/"]) == 1
        assert audit.main([f"{address}/absent"]) == 2
        server.shutdown()
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "stacks.toml: torch: ours: no row; theirs: 99.0+rocm99.0"
    assert err.splitlines()[-1].startswith(f"rocmprobe: cannot read {address}/absent: HTTP Error 404")


def test_a_source_that_repeats_another(tmp_path):
    for name in ("one.cmake", "two.cmake"):
        (tmp_path / name).write_text(targets(), "utf-8")
    assert audit.main([str(tmp_path / "one.cmake"), str(tmp_path / "two.cmake")]) == 0


def test_bad_sources(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing", "utf-8")
    for source, message in (
        ("/no/such/folder", "rocmprobe: cannot read /no/such/folder: "),
        (str(tmp_path / "notes.txt"), f"rocmprobe: {tmp_path / 'notes.txt'} has no solver"),
        (str(tmp_path), f"rocmprobe: {tmp_path} has no solver"),
    ):
        assert audit.main([source]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(message)
        assert err.count("\n") == 1
