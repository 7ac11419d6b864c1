"""Reading from a captured log which implementation the vendor library ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocmprobe.backends import BACKENDS, Cudnn, Miopen, Onednn, backend_for
from rocmprobe.knowledge.miopen_log import Reading

V1 = (
    "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd69a3df32adcccb623b12cd7baa22)\n"
    "onednn_verbose,v1,primitive,info,template:operation,engine,primitive,implementation,prop_kind\n"
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:bf16::blocked:abcd::f0,,,8x8x3x3,0.0039\n"
    "onednn_verbose,v1,primitive,exec,cpu,convolution,jit_bf16:avx512_core_bf16,forward_training,"
    "src:bf16:a:blocked:abcd::f0 wei:bf16:ap:blocked:AcdB16a2b::f0 bia:undef::undef::: dst:bf16:ap:blocked:"
    "aBcd16b::f0,attr-scratchpad:user,alg:convolution_direct,mb1_ic8oc8_ih8oh6kh3sh1dh0ph0,0.0151367\n"
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:bf16:p:blocked:aBcd16b::f0,,,1x8x6x6,0.0010\n"
)
V0 = (
    "onednn_verbose,info,oneDNN v2.6.0 (commit 52b5f107dd9cf10910aaa19cb47f3abf9b349815)\n"
    "onednn_verbose,exec,cpu,convolution,jit:avx2,forward_training,src_f32::blocked:abcd:f0 "
    "wei_f32::blocked:Acdb8a:f0 bia_f32::blocked:a:f0 dst_f32::blocked:aBcd8b:f0,,alg:convolution_direct,"
    "mb2_ic3oc8_ih8oh6kh3sh1dh0ph0_iw8ow6kw3sw1dw0pw0,0.0209961\n"
)
OLDEST = V0.replace("onednn_verbose", "dnnl_verbose").replace("jit:avx2", "gemm:jit")
STAMPED = V1.replace("verbose,v1,", "verbose,v1,1234567.25,")
STAMPED_V0 = V0.replace("onednn_verbose,", "onednn_verbose,1234567.25,")


def executed(primitive, implementation):
    return f"onednn_verbose,v1,primitive,exec,cpu,{primitive},{implementation},backward_data,src,,,mb1,0.02\n"


class TestOnednn:
    @pytest.mark.parametrize(
        ("log", "expected"),
        [
            (V1, "jit_bf16:avx512_core_bf16"),
            (V0, "jit:avx2"),
            (OLDEST, "gemm:jit"),
            (STAMPED, "jit_bf16:avx512_core_bf16"),
            (STAMPED_V0, "jit:avx2"),
            (V1 + executed("convolution", "brgconv:avx512_core"), "brgconv:avx512_core"),
            (V1 + executed("deconvolution", "conv:any+jit:avx2"), "conv:any+jit:avx2"),
            ("printed by the program\n" + V1.replace("\n", "\r\n"), "jit_bf16:avx512_core_bf16"),
            (executed("matmul", "gemm:jit") + executed("inner_product", "brgemm:avx2"), None),
            ("said: onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx2,forward\n", None),
            ("onednn_verbose,v1,primitive,create:cache_miss,cpu,convolution,jit:avx2,forward,x\n", None),
            ("onednn_verbose,v1,primitive,exec,cpu,convolution,jit:av", None),
            ("", None),
        ],
        ids=["v1", "v0", "dnnl", "v1 stamped", "v0 stamped", "the last counts", "transposed", "among others",
             "other primitives", "quoted", "created only", "cut off", "nothing"],
    )  # fmt: skip
    def test_the_executed_primitive(self, log, expected):
        assert Onednn().read(log).implementation == expected

    @pytest.mark.parametrize(
        ("log", "family"),
        [
            (V1, "Direct"),
            (V0, "Direct"),
            (OLDEST, "GEMM"),
            (V1.replace("alg:convolution_direct", "alg:convolution_winograd"), "Winograd"),
            (V0.replace("jit:avx2", "ref:any"), "naive"),
            (V1.replace("alg:convolution_direct", "alg:convolution_of_tomorrow"), None),
            ("", None),
        ],
        ids=["v1", "v0", "GEMM", "Winograd", "reference", "unknown", "nothing"],
    )
    def test_its_algorithm(self, log, family):
        assert Onednn().read(log).algorithm == family

    @pytest.mark.parametrize(
        ("implementation", "last_resort"),
        [("ref:any", True), ("ref", True), ("jit:avx2", False), ("gemm:ref", False), ("brgconv:avx2", False)],
    )
    def test_its_last_resort(self, implementation, last_resort):
        assert Onednn().is_fallback(implementation) == last_resort


FIND = (
    "MIOpen(HIP): Info [EvaluateInvokers] Selected: ConvDirectNaiveConvFwd: naive: 8.0, workspace_sz = 0\n"
    "MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: GemmFwdRest , 6912, 8.00061\n"
    "MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 6912\n"
)
CHOSEN = "MIOpen(HIP): Info [FindConvAlgorithm] {} Chosen Algorithm: {} , 6912, 8.0\n"
IMMEDIATE = (
    "MIOpen(HIP): Info [CompileSolution] solver_id = ConvDirectNaiveConvFwd\n"
    "MIOpen(HIP): Info [ConvolutionForwardImmediate] solver_id = ConvDirectNaiveConvFwd, workspace = 0\n"
)


class TestMiopen:
    @pytest.mark.parametrize(
        ("log", "expected"),
        [
            (FIND, "GemmFwdRest"),
            (FIND.replace("FillFindReturnParameters", "FindConvFwdAlgorithm"), "GemmFwdRest"),
            (CHOSEN.format("BWD", "GemmBwdRest"), "GemmBwdRest"),
            (CHOSEN.format("BWrW", "GemmWrwUniversal"), "GemmWrwUniversal"),
            (IMMEDIATE, "ConvDirectNaiveConvFwd"),
            (IMMEDIATE + FIND, "GemmFwdRest"),
            ("4711 MIOpen(HIP)   1.250: Info [X] FW Chosen Algorithm: fft , 0, 3.3\n", "fft"),
            ("MIOpen Error: convolutionocl.cpp:518: Forward Convolution cannot be executed\n", None),
            ("", None),
        ],
    )  # fmt: skip
    def test_the_chosen_solver(self, log, expected):
        assert Miopen().read(log).implementation == expected

    @pytest.mark.parametrize(
        ("solver", "last_resort"),
        [
            ("ConvDirectNaiveConvFwd", True),
            ("ConvDirectNaiveConvBwd", True),
            ("ConvDirectNaiveConvWrw", True),
            ("GemmFwdRest", False),
            ("ConvBinWinogradRxSf3x2", False),
            ("ConvOclDirectFwd", False),
            ("fft", False),
        ],
    )
    def test_its_last_resort(self, solver, last_resort):
        assert Miopen().is_fallback(solver) == last_resort


RUNS = Path(__file__).parents[3] / "shared" / "fixtures" / "miopen-runs"


@pytest.mark.skipif(not RUNS.is_dir(), reason="recorded MIOpen runs are not part of the repository")
@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("01-find-dynamic_hybrid-default.log", "ConvDirectNaiveConvFwd"),
        ("04-imm-sol85.log", "ConvDirectNaiveConvFwd"),
        ("04-imm-sol91.log", "GemmFwdRest"),
        ("05-hsa-override-10.3.0.log", "ConvOclDirectFwd"),
        ("06-fft-5x5.log", "GemmFwdRest"),
        ("matrix/v-MIOPEN_DEBUG_CONV_DIRECT_0.log", "GemmFwdRest"),
        ("matrix/v-MIOPEN_DEBUG_CONV_GEMM_0.log", "ConvDirectNaiveConvFwd"),
        ("matrix/v-HIP_VISIBLE_DEVICES_-1.log", None),
    ],
)
def test_real_logs(name, solver):
    assert Miopen().read((RUNS / name).read_text("utf-8", "replace")).implementation == solver


def test_cudnn_names_nothing():
    assert Cudnn().read(V1 + FIND).implementation is None
    assert Cudnn().read(V1 + FIND) == Reading()
    assert not Cudnn().is_fallback("anything")


@pytest.mark.parametrize(
    ("device", "kind", "name"),
    [
        ("cpu", "cpu", "onednn"), ("cpu", "rocm", "onednn"), ("cuda:0", "rocm", "miopen"),
        ("cuda:1", "cuda", "cudnn"), ("cuda", "rocm", "miopen"),
    ],
)  # fmt: skip
def test_the_backend_behind_a_device(device, kind, name):
    found = backend_for(device, kind)
    assert found is BACKENDS[name]
    assert found.name == name
    assert device.startswith(found.device_type)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=lambda backend: backend.name)
def test_trace_variables_are_text(backend):
    assert all(isinstance(each, str) for item in backend.trace_variables.items() for each in item)
    assert backend.library
