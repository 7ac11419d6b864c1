"""The catalogue of environment variables, and the label of one that is set."""

from __future__ import annotations

import difflib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocmprobe.knowledge import settings, variables
from rocmprobe.model.results import Fact, Machine

ROWS = variables.variables()
REAL = [row.name for row in ROWS if row.of not in ("nobody", "process") and not row.name.endswith("*")]
RELEASES = st.one_of(st.none(), st.tuples(st.integers(0, 99), st.integers(0, 99)))


def verdict(name, value, rocm=None, torch=None):
    return variables.label(name, value, rocm, torch).verdict


class TestCatalogue:
    def test_every_row_says_what_it_does_and_where_that_was_read(self):
        for row in ROWS:
            assert row.effect, row.name
            assert "{" not in row.effect + row.source, row.name
            assert len(row.source) > 2, row.name
            assert "knowledge" not in row.source, row.name
            assert row.values in variables.KINDS, row.name
            assert row.read in ("load", "import", "first-call", "each-call", "build"), row.name
            assert row.of in (
                "miopen", "rocr", "hip", "comgr", "rocblas", "hipblaslt", "torch", "build", "process",
                "nobody",
            ), row.name  # fmt: skip
            assert all(re.fullmatch(r"\d+\.\d+|", text) for text in (row.since, row.until)), row.name

        # A name stands once.
        assert len({row.name for row in ROWS}) == len(ROWS)

        # A default is a value that is taken.
        for row in ROWS:
            assert not row.default or verdict(row.name, row.default) == variables.DEFAULT, row.name

        # No known name looks like a secret.
        assert [name for name in REAL if not variables.matters(name)] == []

        # Every variable of a setting is known and taken.
        for setting, _, _ in settings.all_settings():
            for name, value in setting.env.items():
                assert verdict(name, value) in (variables.EFFECTIVE, variables.DEFAULT), (name, value)

    @pytest.mark.parametrize("row", [row for row in ROWS if row.of == "nobody"])
    def test_what_folklore_points_to_exists(self, row):
        assert verdict(row.name, "1") == variables.FOLKLORE
        advised = re.findall(r"Use ([A-Z0-9_]+)", row.effect)
        assert all(name in REAL for name in advised)


class TestLabels:
    @pytest.mark.parametrize(
        ("name", "value", "rocm", "expected"),
        [
            ("MIOPEN_FIND_MODE", "2", (5, 2), variables.EFFECTIVE),
            ("MIOPEN_FIND_MODE", "fast", None, variables.EFFECTIVE),
            ("MIOPEN_FIND_MODE", "5", None, variables.DEFAULT),
            ("MIOPEN_FIND_MODE", "DYNAMIC_HYBRID", None, variables.DEFAULT),
            ("MIOPEN_FIND_MODE", "", None, variables.DEFAULT),
            ("MIOPEN_FIND_MODE", "foo", (6, 4), variables.REJECTED),
            ("MIOPEN_FIND_MODE", "99", (6, 4), variables.REJECTED),
            ("MIOPEN_FIND_MODE", "TRUST_VERIFY", (6, 4), variables.REJECTED),
            ("MIOPEN_FIND_MODE", "TRUST_VERIFY", (7, 1), variables.EFFECTIVE),
            ("MIOPEN_FIND_MODE_FUSION", "1", (6, 2), variables.NOT_HERE),
            ("MIOPEN_FIND_ENFORCE", "ALWAYS", (6, 2), variables.REJECTED),
            ("MIOPEN_DEBUG_USE_HIPRTC", "1", (6, 3), variables.NOT_HERE),
            ("MIOPEN_LOG_LEVEL", "abc", None, variables.REJECTED),
            ("MIOPEN_LOG_LEVEL", "6", None, variables.EFFECTIVE),
            ("MIOPEN_LOG_LEVEL", "0", None, variables.DEFAULT),
            ("MIOPEN_GEMM_ENFORCE_BACKEND", "2", None, variables.REJECTED),
            ("MIOPEN_DEBUG_CONV_WINOGRAD", "0", None, variables.EFFECTIVE),
            ("MIOPEN_DEBUG_CONV_WINOGRAD", "yes", None, variables.DEFAULT),
            ("MIOPEN_DEBUG_CONV_WINOGRAD", "False", (5, 7), variables.REJECTED),
            ("MIOPEN_DEBUG_CONV_WINOGRAD", "False", (6, 0), variables.EFFECTIVE),
            ("MIOPEN_DEBUG_CONV_WINOGRAD", "maybe", (6, 1), variables.REJECTED),
            ("HSA_OVERRIDE_GFX_VERSION", "10.3.0", None, variables.EFFECTIVE),
            ("HSA_OVERRIDE_GFX_VERSION", "gfx1030", None, variables.REJECTED),
            ("HSA_OVERRIDE_GFX_VERSION", "10.3", None, variables.REJECTED),
            ("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0", (6, 3), variables.EFFECTIVE),
            ("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0", (6, 2), variables.NOT_HERE),
            ("HSA_ENABLE_SDMA", "false", None, variables.REJECTED),
            ("HIP_VISIBLE_DEVICES", "0,1", None, variables.EFFECTIVE),
            ("HIP_VISIBLE_DEVICES", "-1", None, variables.EFFECTIVE),
            ("HIP_VISIBLE_DEVICES", "cuda:0", None, variables.REJECTED),
            ("ROCR_VISIBLE_DEVICES", "GPU-0123456789abcdef", None, variables.EFFECTIVE),
            ("ROC_ENABLE_PRE_VEGA", "1", (5, 7), variables.EFFECTIVE),
            ("ROC_ENABLE_PRE_VEGA", "1", (6, 0), variables.NOT_HERE),
            ("HIP_LAUNCH_BLOCKING", "1", (5, 2), variables.NOT_HERE),
            ("AMD_LOG_MASK", "0x7FFFFFFF", None, variables.REJECTED),
            ("AMD_SERIALIZE_KERNEL", "3", None, variables.EFFECTIVE),
            ("GPU_ENABLE_WGP_MODE", "no", None, variables.REJECTED),
            ("PYTORCH_HIP_ALLOC_CONF", "max_split_size_mb:128,backend:native", None, variables.EFFECTIVE),
            ("PYTORCH_HIP_ALLOC_CONF", "roundup_power2_divisions:[256:1,>:8]", None, variables.EFFECTIVE),
            ("PYTORCH_HIP_ALLOC_CONF", "max_split_size_mb=128", None, variables.REJECTED),
            ("PYTORCH_HIP_ALLOC_CONF", "max_split_size:128", None, variables.REJECTED),
            ("PYTORCH_MIOPEN_SUGGEST_NHWC", "true", None, variables.REJECTED),
            ("ROCM_VISIBLE_DEVICES", "0", None, variables.FOLKLORE),
            ("TORCH_USE_HIP_DSA", "1", None, variables.FOLKLORE),
            # Names that the table may lack.
            ("MIOPEN_OF_NO_SOURCE", "1", (6, 4), variables.UNKNOWN),
            ("MIOPEN_OF_NO_SOURCE", "1", (7, 14), variables.NOT_LISTED),
            ("MIOPEN_OF_NO_SOURCE", "1", None, variables.NOT_LISTED),
            ("TORCH_SOMETHING_ELSE_ALTOGETHER", "1", (6, 4), variables.NOT_LISTED),
            ("ROCBLAS_DIR", "1", (6, 2), variables.NOT_LISTED),
            ("MIOPEN_FIND_MOD", "1", (10, 1), variables.UNKNOWN),
            ("MIOPEN_DEBUG_AMD_WINOGRAD_RXS_F2X4", "1", (10, 1), variables.NOT_LISTED),
            # Variables of the newest releases.
            ("MIOPEN_NAIVE_DISABLE_IF_ALT", "0", (7, 14), variables.EFFECTIVE),
            ("MIOPEN_NAIVE_DISABLE_IF_ALT", "0", (10, 0), variables.NOT_HERE),
            ("MIOPEN_NAIVE_MAX_DRAINING", "2", (7, 14), variables.NOT_HERE),
            ("MIOPEN_NAIVE_MAX_DRAINING", "2", (10, 0), variables.EFFECTIVE),
            ("MIOPEN_DEBUG_DISABLE_USER_DB", "1", (10, 0), variables.NOT_HERE),
            ("MIOPEN_FIND_SKIP_PCT", "200", (10, 0), variables.EFFECTIVE),
            ("MIOPEN_CONV_DIRECT_MAX_SIZE", "1000", (7, 13), variables.EFFECTIVE),
            ("MIOPEN_DEBUG_SYMBOLS_KERNEL", "1", (10, 1), variables.EFFECTIVE),
            ("MIOPEN_DEBUG_RNN_FUSED_INFERENCE", "1", (10, 1), variables.EFFECTIVE),
            ("MIOPEN_PERFORMANCE_LOGS", "1", (10, 0), variables.EFFECTIVE),
            ("MIOPEN_PERFORMANCE_LOGS", "5", (10, 0), variables.REJECTED),
        ],
    )  # fmt: skip
    def test_verdict(self, name, value, rocm, expected):
        assert verdict(name, value, rocm) == expected

    def test_what_is_told_beside_the_verdict(self):
        # Torch variables go by the release of torch.
        assert verdict("TORCH_BLAS_PREFER_HIPBLASLT", "1", (6, 0), (2, 3)) == variables.NOT_HERE
        assert verdict("TORCH_BLAS_PREFER_HIPBLASLT", "1", (1, 0), (2, 4)) == variables.EFFECTIVE

        # The stoul failure is told with the releases that have it.
        assert "stoul" in variables.label("MIOPEN_FIND_MODE", "foo", (6, 1), None).why
        assert "stoul" not in variables.label("MIOPEN_FIND_MODE", "foo", (6, 0), None).why
        unsure = variables.label("MIOPEN_FIND_MODE", "foo", None, None).why
        assert "stoul" in unsure
        assert "default" in unsure

        # What is read once says so.
        assert variables.label("MIOPEN_FIND_MODE", "1", None, None).words == (
            variables.EFFECTIVE,
            variables.ONCE,
        )

        # A misspelling is answered with the name that was meant.
        label = variables.label("MIOPEN_DEBUG_CONV_WINOGRD", "0", None, None)
        assert (label.verdict, label.nearest) == (variables.UNKNOWN, "MIOPEN_DEBUG_CONV_WINOGRAD")

    def test_releases_come_from_the_wheel_before_the_installed_rocm(self):
        facts = {"torch.hip": Fact("5.2.21151-afdc89f8"), "rocm.version": Fact("6.4.3")}
        machine = Machine(facts=facts, variables={"ROC_ENABLE_PRE_VEGA": Fact("1", "environment")})
        assert variables.labels(machine)["ROC_ENABLE_PRE_VEGA"].verdict == variables.EFFECTIVE
        facts["torch.hip"] = Fact(None, "no torch")
        assert variables.labels(machine)["ROC_ENABLE_PRE_VEGA"].verdict == variables.NOT_HERE


class TestProperties:
    @given(
        name=st.one_of(st.text(), st.sampled_from([row.name for row in ROWS])),
        value=st.text(),
        rocm=RELEASES,
        torch=RELEASES,
    )
    def test_anything_gets_a_label_of_the_vocabulary(self, name, value, rocm, torch):
        label = variables.label(name, value, rocm, torch)
        assert set(label.words) <= set(variables.LABELS)
        assert label.why

    @given(
        name=st.sampled_from(REAL),
        value=st.from_regex(r"[-+ 0-9a-fxXgG.:,\[\]]{0,30}", fullmatch=True),
        rocm=RELEASES,
    )
    def test_nor_does_a_value_that_looks_like_a_number_break_it(self, name, value, rocm):
        assert variables.label(name, value, rocm, rocm).words

    @pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "0" * 5000, "-" * 5000, "1" + "\0" * 9])
    def test_nor_a_huge_one(self, value):
        for name in REAL:
            assert variables.label(name, value, None, None).words

    @given(
        st.sampled_from(REAL),
        st.integers(0, 200),
        st.sampled_from(["drop", "double", "other"]),
        st.sampled_from("AQZ_7"),
    )
    def test_the_nearest_name_is_found_for_one_wrong_letter(self, name, position, how, letter):
        place = position % len(name)
        wrong = (
            name[:place] + {"drop": "", "double": name[place] * 2, "other": letter}[how] + name[place + 1 :]
        )
        if variables.find(wrong) is not None:
            return
        found = variables.nearest(wrong)
        assert found is not None

        def alike(other):
            return difflib.SequenceMatcher(None, other, wrong).ratio()

        # Names of one family differ in one letter themselves.
        assert found == name or alike(found) >= alike(name)

    @given(st.dictionaries(st.text(), st.text()))
    def test_any_environment_is_labelled(self, environ):
        machine = Machine(variables={name: Fact(value, "environment") for name, value in environ.items()})
        assert set(variables.labels(machine)) == set(environ)
        assert len(variables.label_facts(machine)) == len(environ)
