"""The problem matrix: layers of real networks in variants, and pairwise combinations of sizes.

Each level takes these rows of ``data/networks.toml`` and ``data/geometry.toml``:

========  ===============================================  =======================================
level     networks                                         geometry
========  ===============================================  =======================================
quick     the main layer of each network, plain; for       every value at least once
          each other variant, one network's main layer
standard  every layer, plain; each network's main          every pair of values
          layer in every variant
long      every layer in every variant, with the           every pair of values for each kind
          original image size
========  ===============================================  =======================================

"Plain" is the unchanged layer. ``VARIANTS`` has all variants. A level includes the problems of the lower
levels. In quick and standard, images are smaller (see ``reduced``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, combinations, count, islice, product
from typing import Optional

from allpairspy import AllPairs

from rocmprobe.model.problems import LEVELS, Problem, parse_problem
from rocmprobe.model.results import DIRECTIONS, BadInput
from rocmprobe.text.tables import table

#: Limit of operations per direction. It is low because a CPU computes each fp64 reference several times.
REDUCED_FLOPS = 20_000_000
#: Limit of products that are summed into one element. Only level long has longer sums.
REDUCED_TERMS = 1 << 14
SMALLEST_SIDE = 4
#: Parameters of the geometry. Parameters that limit other parameters come first, so AllPairs backtracks
#: early.
PARAMETERS = (
    "kind", "output_padding", "layout", "kernel", "dilation", "padding", "stride", "groups", "bias", "dtype",
)  # fmt: skip
_SIMPLEST = ("conv2d", "none", "contiguous", "1", "1", "0", "1", "c1-k1", "none", "fp32")
#: Number of values that an incomplete row needs before its sizes can be checked: all values up to the stride.
_SIZED = PARAMETERS.index("stride") + 1

Row = tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A problem of the matrix, and its origin.

    ``layer`` and ``variant`` (a key of ``VARIANTS``) are empty if the problem is not from a network.
    """

    problem: Problem
    network: str
    layer: str = ""
    variant: str = ""

    @property
    def origin(self) -> str:
        return f"{self.network}, {self.layer}: {self.variant}" if self.layer else self.network


@dataclass(frozen=True)
class Network:
    """A network of ``data/networks.toml``. The first layer is the main layer."""

    name: str
    source: str
    layers: Mapping[str, Problem]


def problem_matrix(level: str) -> tuple[Problem, ...]:
    """Return the problems of ``level`` without duplicates."""
    return tuple(entry.problem for entry in entries(level))


@lru_cache(maxsize=len(LEVELS))
def entries(level: str) -> tuple[Entry, ...]:
    """Return the problems of ``level`` with their origins, lower levels first, without duplicates."""
    below = LEVELS.index(level)
    lower = entries(LEVELS[below - 1]) if below else ()
    made = (*lower, *_OF_NETWORKS[level](), *_of_geometry(level))
    once: dict[Problem, Entry] = {}
    for entry in made:
        once.setdefault(entry.problem, entry)
    return tuple(once.values())


@lru_cache(maxsize=1)
def networks() -> tuple[Network, ...]:
    """Return the networks of ``data/networks.toml``."""
    return tuple(
        Network(
            row["name"],
            row["source"],
            {layer["name"]: parse_problem(layer["problem"]) for layer in row["layers"]},
        )
        for row in table("networks")["network"]
    )


def reduced(problem: Problem) -> Problem:
    """Return ``problem`` with its image halved until the limits ``REDUCED_FLOPS`` and ``REDUCED_TERMS`` hold.

    No side becomes shorter than ``SMALLEST_SIDE``.
    """
    while problem.flops > REDUCED_FLOPS or max(map(problem.terms, DIRECTIONS)) > REDUCED_TERMS:
        size = tuple(
            max(-(-side // 2), min(side, max(SMALLEST_SIDE, dilation + 1)))
            for side, dilation in zip(problem.input_size, problem.dilation)
        )
        smaller = replace(problem, input_size=size)
        if smaller == problem or min(smaller.output_size) < 1:
            break
        problem = smaller
    return problem


def tail(problem: Problem) -> Problem:
    """Return ``problem`` with odd primes as batch, channels per group and image sides.

    Tile, vector and wave sizes do not divide these numbers. In a depthwise problem, the number of groups
    becomes prime.
    """
    groups = problem.groups
    inner, outer = problem.in_channels // groups, problem.out_channels // groups
    if groups > 1 and inner == 1:
        groups = _prime(groups)
    else:
        inner, outer = _prime(inner), _prime(outer)
    sides: list[int] = []
    for axis, side in enumerate(problem.input_size):
        fitting = (
            prime for prime in _primes_near(side) if prime not in sides and _fits(problem, axis, prime)
        )
        sides.append(next(fitting))
    return replace(
        problem,
        batch=_prime(problem.batch),
        in_channels=groups * inner,
        input_size=tuple(sides),
        out_channels=groups * outer,
        groups=groups,
    )


def batch_17(problem: Problem) -> Optional[Problem]:
    """Return ``problem`` with more samples than a tile of 16, and a small image.

    Return None if the smallest image is still too expensive.
    """
    smaller = reduced(replace(problem, batch=17))
    return smaller if smaller.flops <= REDUCED_FLOPS else None


def channels_last(problem: Problem) -> Optional[Problem]:
    """Return ``problem`` in NHWC, or None if the problem is not two-dimensional."""
    return replace(problem, channels_last=True) if problem.rank == 2 else None


def noncontiguous(problem: Problem) -> Problem:
    """Return ``problem`` with operands that have gaps between the elements."""
    return replace(problem, noncontiguous=True)


#: Functions, keyed by name, that return a variant of a problem, or None if the problem has no such variant.
VARIANTS: Mapping[str, Callable[[Problem], Optional[Problem]]] = {
    "plain": lambda problem: problem,
    "tail": tail,
    "channels-last": channels_last,
    "noncontiguous": noncontiguous,
    "batch-17": batch_17,
}


def _in_variants(
    network: Network, layer: str, names: Iterable[str], true_image: bool = False
) -> Iterator[Entry]:
    problem = network.layers[layer] if true_image else reduced(network.layers[layer])
    for name in names:
        varied = VARIANTS[name](problem)
        if varied is not None:
            yield Entry(varied, network.name, layer, name)


def _main_layers() -> Iterator[Entry]:
    others = list(VARIANTS)[1:]
    for number, network in enumerate(networks()):
        yield from _in_variants(network, next(iter(network.layers)), ("plain", *others[number:][:1]))


def _layers_and_variants() -> Iterator[Entry]:
    for network in networks():
        for number, layer in enumerate(network.layers):
            yield from _in_variants(network, layer, ("plain",) if number else VARIANTS)


def _everything_at_its_size() -> Iterator[Entry]:
    for network in networks():
        for layer in network.layers:
            yield from _in_variants(network, layer, VARIANTS, true_image=True)


_OF_NETWORKS: Mapping[str, Callable[[], Iterator[Entry]]] = {
    "quick": _main_layers,
    "standard": _layers_and_variants,
    "long": _everything_at_its_size,
}


def _fits(problem: Problem, axis: int, side: int) -> bool:
    alike = replace(problem, input_size=(side,) * problem.rank)
    return alike.output_size[axis] >= 1


def _prime(number: int) -> int:
    return next(_primes_near(number))


def _primes_near(number: int) -> Iterator[int]:
    """Yield odd primes: first from ``number`` downwards, then from ``number + 1`` upwards."""
    return filter(_is_odd_prime, chain(range(number, 2, -1), count(max(3, number + 1))))


def _is_odd_prime(number: int) -> bool:
    return number > 2 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def geometry_rows(level: str) -> tuple[Row, ...]:
    """Return the combinations of the values of ``PARAMETERS`` that ``level`` tests.

    Quick has every value, standard every pair of values, and long every pair for each kind of convolution.
    """
    values = parameter_values()
    rows = _covering(values, 1, ())
    if level == "quick":
        return rows
    rows = _covering(values, 2, rows)
    if level == "standard":
        return rows
    for kind in values[0]:
        of_kind = tuple(row for row in rows if row[0] == kind)
        rows += _covering(((kind,), *values[1:]), 2, of_kind)[len(of_kind) :]
    return rows


@lru_cache(maxsize=1)
def parameter_values() -> tuple[Row, ...]:
    """Return the possible values of each parameter in ``PARAMETERS``."""
    return tuple(tuple(table("geometry")[name]["values"]) for name in PARAMETERS)


@cache
def problem_of(row: Row) -> Optional[Problem]:
    """Return the problem for a row of values, or None if the values do not fit together.

    The simplest values replace missing values at the end of the row.
    """
    values = (*row, *_SIMPLEST[len(row) :])
    kind, output_padding, layout, kernel, dilation, padding, stride, groups, bias, dtype = values
    # Dilation has no effect on a 1x1 kernel.
    if kernel == "1" and dilation != "1":
        return None
    geometry, rank = table("geometry"), int(kind[-2])
    sizes = {"i": geometry["image"], "f": kernel, "s": stride, "p": padding, "d": dilation}
    flags = (flag for flag in (bias, layout) if flag not in ("none", "contiguous"))
    try:
        problem = parse_problem(
            "-".join(
                (
                    f"{kind}-{dtype}-n{geometry['batch']}-{groups}",
                    *(letter + "x".join(value.split("x")[-rank:]) for letter, value in sizes.items()),
                    *flags,
                )
            )
        )
        if output_padding == "none":
            return problem
        largest = tuple(max(pair) - 1 for pair in zip(problem.stride, problem.dilation))
        return parse_problem(replace(problem, output_padding=largest).text) if any(largest) else None
    except BadInput:
        return None


def _can_be_valid(row: Sequence[str]) -> bool:
    """Return False if the sizes in ``row`` do not fit together."""
    return len(row) < _SIZED or problem_of(tuple(row)) is not None


def _covering(values: Sequence[Row], strength: int, before: tuple[Row, ...]) -> tuple[Row, ...]:
    """Add rows to ``before`` until every possible value or pair of values occurs.

    ``strength`` is 1 for values and 2 for pairs. Return ``before`` followed by the new rows.
    """
    rows = [*before, *_all_pairs(values, strength, before)]
    # AllPairs stops early if its filter rejects too many rows, so add a row for each missing combination.
    covered = {places for row in rows for places in combinations(enumerate(row), strength)}
    for places in combinations(range(len(values)), strength):
        for wanted in product(*(values[place] for place in places)):
            if tuple(zip(places, wanted)) not in covered:
                fixed = dict(zip(places, wanted))
                alone = [(fixed[place],) if place in fixed else row for place, row in enumerate(values)]
                for row in islice(_all_pairs(alone, 1), 1):
                    rows.append(row)
                    covered.update(combinations(enumerate(row), strength))
    return tuple(rows)


def _all_pairs(values: Sequence[Row], strength: int, before: Iterable[Row] = ()) -> Iterator[Row]:
    return map(tuple, AllPairs(values, _can_be_valid, [list(row) for row in before], strength))


def _of_geometry(level: str) -> Iterator[Entry]:
    for row in geometry_rows(level):
        problem = problem_of(row)
        assert problem is not None, "AllPairs gives possible rows"
        yield Entry(problem, "geometry")
