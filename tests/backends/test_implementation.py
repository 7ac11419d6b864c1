"""Reading from a captured log which implementation the vendor library ran."""

from __future__ import annotations

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


FIND = (
    "MIOpen(HIP): Info [EvaluateInvokers] Selected: ConvDirectNaiveConvFwd: naive: 8.0, workspace_sz = 0\n"
    "MIOpen(HIP): Info [FillFindReturnParameters] FW Chosen Algorithm: GemmFwdRest , 6912, 8.00061\n"
    "MIOpen(HIP): Info [ConvolutionForward] algo = 0, workspace = 6912\n"
)


@pytest.mark.parametrize(
    ("backend", "implementation", "last_resort"),
    [
        (Onednn(), "ref:any", True), (Onednn(), "ref", True), (Onednn(), "jit:avx2", False),
        (Onednn(), "gemm:ref", False), (Onednn(), "brgconv:avx2", False),
        (Miopen(), "ConvDirectNaiveConvFwd", True), (Miopen(), "ConvDirectNaiveConvBwd", True),
        (Miopen(), "ConvDirectNaiveConvWrw", True), (Miopen(), "GemmFwdRest", False),
        (Miopen(), "ConvBinWinogradRxSf3x2", False), (Miopen(), "ConvOclDirectFwd", False),
        (Miopen(), "fft", False), (Cudnn(), "anything", False),
    ],
)  # fmt: skip
def test_the_implementation_of_last_resort(backend, implementation, last_resort):
    assert backend.is_fallback(implementation) == last_resort


def test_cudnn_names_nothing():
    assert Cudnn().read(V1 + FIND) == Reading()


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
