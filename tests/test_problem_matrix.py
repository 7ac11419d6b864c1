"""The problem matrix: what levels cover, what a variant changes, operands that are not contiguous."""

from __future__ import annotations

from itertools import combinations, product
from math import prod

import pytest
from hypothesis import given, settings
from test_problems import any_problem
from tiers import examples

from rocmprobe.model.problem_matrix import (
    PARAMETERS,
    VARIANTS,
    entries,
    networks,
    noncontiguous,
    parameter_values,
    problem_matrix,
    problem_of,
    reduced,
    tail,
)
from rocmprobe.model.problems import LEVELS, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS

VALUES = dict(zip(PARAMETERS, parameter_values()))
#: What decides whether sizes go together; the others go with everything.
SIZED = PARAMETERS[: PARAMETERS.index("stride") + 1]


def row_of(problem: Problem) -> tuple[tuple[str, str], ...]:
    """The values of geometry that a problem has, read off the problem itself."""

    def listed(name: str, sizes: tuple[int, ...]) -> str:
        found = [
            value
            for value in VALUES[name]
            if sizes == tuple(map(int, (value.split("x") * (1 if "x" in value else 3))[-problem.rank :]))
        ]
        (value,) = found
        return value

    channels = f"c{problem.in_channels}-k{problem.out_channels}"
    layout = "nhwc" if problem.channels_last else "noncontiguous" if problem.noncontiguous else "contiguous"
    values = {
        "kind": problem.kind, "output_padding": "largest" if any(problem.output_padding) else "none",
        "layout": layout, "kernel": listed("kernel", problem.kernel),
        "dilation": listed("dilation", problem.dilation), "padding": listed("padding", problem.padding),
        "stride": listed("stride", problem.stride),
        "groups": channels + (f"-g{problem.groups}" if problem.groups > 1 else ""),
        "bias": "bias" if problem.bias else "none", "dtype": problem.text.split("-")[1],
    }  # fmt: skip
    assert all(value in VALUES[name] for name, value in values.items())
    return tuple(values.items())


def geometry(level: str) -> list[tuple[tuple[str, str], ...]]:
    return [row_of(entry.problem) for entry in entries(level) if entry.network == "geometry"]


def pairs(rows):
    return {pair for row in rows for pair in combinations(row, 2)}


@pytest.fixture(scope="module")
def possible() -> set:
    """Every pair of values that some problem has, found by going through all of them."""
    simple = tuple(VALUES[name][0] for name in PARAMETERS[len(SIZED) :])
    sized = [
        tuple(zip(SIZED, row))
        for row in product(*(VALUES[name] for name in SIZED))
        if problem_of((*row, *simple))
    ]
    free = [(name, value) for name in PARAMETERS[len(SIZED) :] for value in VALUES[name]]
    with_free = {(each, other) for row in sized for each in row for other in free}
    among_free = {(one, other) for one, other in combinations(free, 2) if one[0] != other[0]}
    return pairs(sized) | with_free | among_free


class TestGeometry:
    def test_quick_has_every_value(self) -> None:
        found = {value for row in geometry("quick") for value in row}
        assert found == {(name, value) for name, values in VALUES.items() for value in values}

    def test_standard_has_every_pair(self, possible: set) -> None:
        assert pairs(geometry("standard")) == possible

    def test_long_has_every_pair_and_a_long_run_more(self) -> None:
        # A pair and a kind, that is each triple with a kind, which the sizes allow.
        found = {(row[0][1], *pair) for row in geometry("long") for pair in combinations(row[1:], 2)}
        missing = [
            (kind, one, other)
            for kind in VALUES["kind"]
            for names in combinations(PARAMETERS[1:], 2)
            for one, other in product(*([(name, value) for value in VALUES[name]] for name in names))
            if (kind, one, other) not in found
        ]
        for kind, *pair in missing:
            fixed = {"kind": kind, **dict(pair)}
            assert not any(
                problem_of((*row, *(VALUES[name][0] for name in PARAMETERS[len(SIZED) :])))
                for row in product(*((fixed[name],) if name in fixed else VALUES[name] for name in SIZED))
            ), (kind, pair)

        # A long run holds more.
        assert len(geometry("quick")) < len(geometry("standard")) < len(geometry("long"))


class TestNetworks:
    def found(self, level: str) -> set[tuple[str, str, str]]:
        return {(each.network, each.layer, each.variant) for each in entries(level) if each.layer}

    def test_each_level_asks_about_its_layers(self) -> None:
        # Quick asks one layer of each and every variant.
        telling = {(each.name, next(iter(each.layers))) for each in networks()}
        found = self.found("quick")
        assert {(network, layer) for network, layer, _ in found} == telling
        assert {(network, layer) for network, layer, variant in found if variant == "plain"} == telling
        assert {variant for _, _, variant in found} == set(VARIANTS)

        # Standard asks every layer and one of each network in every variant.
        found = self.found("standard")
        for network in networks():
            for number, (layer, problem) in enumerate(network.layers.items()):
                wanted = {"plain"} if number else {name for name, vary in VARIANTS.items() if vary(problem)}
                assert {name for of, what, name in found if (of, what) == (network.name, layer)} == wanted

        # Long asks every layer in every variant as it is.
        found = set(problem_matrix("long"))
        for network in networks():
            for problem in network.layers.values():
                assert {vary(problem) for vary in VARIANTS.values()} - {None} <= found

        # The networks of the field.
        names = " ".join(network.name for network in networks())
        for name in (
            "YOLOv8n", "ResNet-50", "MobileNetV2", "MobileNetV3", "EfficientNet", "U-Net", "ConvNeXt",
            "wav2vec", "3-D ResNet", "StyleGAN", "FCN",
        ):  # fmt: skip
            assert name in names
        assert all(network.source for network in networks())


class TestLevels:
    @pytest.mark.parametrize("level", LEVELS)
    def test_texts_are_unique_and_can_be_pasted_back(self, level: str) -> None:
        texts = [problem.text for problem in problem_matrix(level)]
        assert len(set(texts)) == len(texts)
        assert tuple(map(parse_problem, texts)) == problem_matrix(level)

    def test_they_nest_and_fit_into_a_small_gpu(self) -> None:
        # They nest.
        found = [set(problem_matrix(level)) for level in LEVELS]
        assert found[0] < found[1] < found[2]

        # Long fits into a small GPU.
        for problem in problem_matrix("long"):
            shapes = (problem.input_shape, problem.weight_shape, problem.output_shape)
            assert 8 * sum(map(prod, shapes)) < 512 << 20
            assert problem.flops < 15e9
            assert max(map(problem.terms, DIRECTIONS)) < 1 << 19

    @pytest.mark.parametrize(("level", "most", "flops"), [("quick", 26, 20e6), ("standard", 146, 0.3e9)])
    def test_they_stay_cheap(self, level: str, most: int, flops: float) -> None:
        found = problem_matrix(level)
        assert len(found) <= most
        assert max(problem.flops for problem in found) <= flops


def plain(largest: int):
    """Problems whose operands are packed."""
    return any_problem(largest).filter(lambda each: not (each.channels_last or each.noncontiguous))


class TestVariants:
    @settings(max_examples=examples(150))
    @given(plain(largest=40))
    def test_each_changes_what_it_says_and_nothing_else(self, problem: Problem) -> None:
        for name, vary in VARIANTS.items():
            varied = vary(problem)
            if varied is None:
                assert name == "batch-17" or (name, problem.rank == 2) == ("channels-last", False)
                continue
            assert parse_problem(varied.text) == varied
            changed = {field for field, value in vars(problem).items() if vars(varied)[field] != value}
            allowed = {
                "tail": {"batch", "in_channels", "input_size", "out_channels", "groups"},
                "batch-17": {"batch", "input_size"}, "channels-last": {"channels_last"},
                "noncontiguous": {"noncontiguous"},
            }  # fmt: skip
            assert changed <= allowed.get(name, set())

    @settings(max_examples=examples(150))
    @given(any_problem(largest=40))
    def test_tail_sizes_are_primes(self, problem: Problem) -> None:
        varied = tail(problem)
        depthwise = problem.groups == problem.in_channels > 1
        assert (varied.groups == varied.in_channels > 1) == depthwise
        inner, outer = (each // varied.groups for each in (varied.in_channels, varied.out_channels))
        if depthwise:
            assert outer == problem.out_channels // problem.groups
        else:
            assert varied.groups == problem.groups
        primes = (varied.groups,) if depthwise else (inner, outer)
        for number in (varied.batch, *primes, *varied.input_size):
            assert number > 2
            assert all(number % divisor for divisor in range(2, number))
        assert len(set(varied.input_size)) == varied.rank

    @given(any_problem(largest=3000))
    def test_a_reduced_image_is_smaller_and_a_problem(self, problem: Problem) -> None:
        smaller = reduced(problem)
        assert parse_problem(smaller.text) == smaller
        assert all(new <= old for new, old in zip(smaller.input_size, problem.input_size))
        assert smaller.weight_shape == problem.weight_shape


class TestNoncontiguous:
    @settings(max_examples=examples(30))
    @given(plain(largest=6))
    def test_operands_have_gaps_and_results_do_not_change(self, problem: Problem) -> None:
        torch = pytest.importorskip("torch")
        from rocmprobe import bypass
        from rocmprobe.checks.tools.tensors import problem_operands, run

        drawn = problem_operands(problem, torch.float32, 7)
        packed = drawn.to("cpu", torch.float32, problem)
        laid_out = drawn.to("cpu", torch.float32, noncontiguous(problem))
        for name in ("input", "weight", "grad"):
            tensor, plain = getattr(laid_out, name), getattr(packed, name)
            assert plain.is_contiguous()
            assert tensor.numel() == 1 or not tensor.is_contiguous()
            assert torch.equal(tensor, plain)
        for direction in DIRECTIONS:
            expected = run(problem, direction, packed)
            with bypass.enabled():
                by_bypass = run(problem, direction, laid_out)
            for found in (run(problem, direction, laid_out), by_bypass):
                for name, values in expected.items():
                    assert torch.allclose(found[name], values, rtol=1e-4, atol=1e-4), (direction, name)
