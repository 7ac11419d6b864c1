"""A convolution through MIOpen's three interfaces: Find, immediate mode, Find 2.0."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Optional

from rocmprobe.backends.capi.miopen import Descriptor, MiopenLibrary, Tensor
from rocmprobe.model.problems import Problem
from rocmprobe.runtimes.calls import INT, SIZE, releasing
from rocmprobe.runtimes.hip import Hip
from rocmprobe.runtimes.memory import Buffer

#: Names of the algorithms, keyed by number (miopenConvAlgorithm_t). Algorithm 4 exists only for bwd-data.
ALGORITHMS = {0: "GEMM", 1: "Direct", 2: "FFT", 3: "Winograd", 4: "TransposeGEMM", 5: "ImplicitGEMM"}
_MOST_SOLUTIONS = 64


@dataclass(frozen=True)
class _Direction:
    """A direction of convolution in MIOpen's interface.

    ``find_order`` is the order of operands for Find. ``other_order`` is their order for immediate mode and
    for workspace queries. ``result`` is the tensor that the direction computes.
    """

    name: str
    number: int
    find_order: str
    other_order: str
    result: str


_DIRECTIONS = {
    "fwd": _Direction("Forward", 0, "xw", "wx", "y"),
    "bwd-data": _Direction("BackwardData", 1, "yw", "yw", "x"),
    "bwd-weights": _Direction("BackwardWeights", 2, "yx", "yx", "w"),
}
_TENSOR_IDS = {"x": 1, "w": 2, "y": 3}


class _AlgoPerf(ctypes.Structure):
    _fields_ = (("algorithm", INT), ("time", ctypes.c_float), ("memory", SIZE))


class _Solution(ctypes.Structure):
    _fields_ = (
        ("time", ctypes.c_float),
        ("workspace", SIZE),
        ("solution_id", ctypes.c_uint64),
        ("algorithm", INT),
    )


class _TensorArgument(ctypes.Structure):
    _fields_ = (("id", INT), ("descriptor", ctypes.c_void_p), ("buffer", ctypes.c_void_p))


@dataclass(frozen=True)
class Found:
    """An algorithm or solver that MIOpen returned, with measured or estimated time, and workspace in bytes.

    ``number`` identifies the algorithm (Find) or the solver (immediate mode, Find 2.0).
    """

    algorithm: str
    number: int
    milliseconds: float
    workspace: int


class Convolution:
    """A convolution in one direction with tensors x, w and y, made by ``convolution``."""

    def __init__(
        self, miopen: MiopenLibrary, descriptor: Descriptor, tensors: dict[str, Tensor], direction: str
    ) -> None:
        self.miopen = miopen
        self.tensors = tensors
        self._direction = _DIRECTIONS[direction]
        self.descriptor = descriptor

    @property
    def result(self) -> Buffer:
        return self.tensors[self._direction.result].buffer

    def workspace_size(self) -> int:
        """Return the workspace in bytes that Find needs to try every solver."""
        size = SIZE()
        self._call("{}GetWorkSpaceSize", *self._descriptors(), ctypes.byref(size))
        return size.value

    def find(self, workspace: Optional[Buffer] = None) -> list[Found]:
        """Run Find, and return the algorithms that it found, the fastest first."""
        results = (_AlgoPerf * len(ALGORITHMS))()
        count = INT()
        direction = self._direction
        self.miopen.library.call(
            f"miopenFindConvolution{direction.name}Algorithm", self.miopen.handle,
            *self._operands(direction.find_order), self.descriptor.address,
            *self._operands(direction.result), len(results),
            ctypes.byref(count), results, *_memory(workspace), False,
        )  # fmt: skip
        return [
            Found(_algorithm(entry.algorithm), entry.algorithm, entry.time, entry.memory)
            for entry in results[: count.value]
        ]

    def run(self, found: Found, workspace: Optional[Buffer] = None) -> None:
        """Run an algorithm that ``find`` returned."""
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        direction = self._direction
        self._call(
            "{}", ctypes.byref(one), *self._operands(direction.find_order), self.descriptor.address,
            found.number, ctypes.byref(zero), *self._operands(direction.result), *_memory(workspace),
        )  # fmt: skip

    def solutions(self) -> list[Found]:
        """Return the solutions of immediate mode, without compiling kernels."""
        count = SIZE()
        self._call("{}GetSolutionCount", *self._descriptors(), ctypes.byref(count))
        entries = (_Solution * max(count.value, 1))()
        self._call("{}GetSolution", *self._descriptors(), len(entries), ctypes.byref(count), entries)
        return [
            Found(_algorithm(entry.algorithm), entry.solution_id, entry.time, entry.workspace)
            for entry in entries[: count.value]
        ]

    def compile(self, solution: Found) -> None:
        self._call("{}CompileSolution", *self._descriptors(), solution.number)

    def run_immediate(self, solution: Found, workspace: Optional[Buffer] = None) -> None:
        """Run one of ``solutions``, after compiling it if necessary."""
        direction = self._direction
        self._call(
            "{}Immediate", *self._operands(direction.other_order), self.descriptor.address,
            *self._operands(direction.result), *_memory(workspace), solution.number,
        )  # fmt: skip

    @contextmanager
    def found_solutions(self) -> Iterator[list[tuple[Found, int]]]:
        """Yield the solutions of Find 2.0 as (solution, address), the fastest first.

        Pass an address to ``run_found`` inside of the ``with`` block.
        """
        library = self.miopen.library
        problem = ctypes.c_void_p()
        with ExitStack() as stack:
            library.call(
                "miopenCreateConvProblem",
                ctypes.byref(problem),
                self.descriptor.address,
                self._direction.number,
            )
            stack.enter_context(releasing(lambda: library.call("miopenDestroyProblem", problem)))
            for name, tensor in self.tensors.items():
                library.call(
                    "miopenSetProblemTensorDescriptor", problem, _TENSOR_IDS[name], tensor.descriptor.address
                )
            solutions = (ctypes.c_void_p * _MOST_SOLUTIONS)()
            count = SIZE()
            library.call(
                "miopenFindSolutions",
                self.miopen.handle,
                problem,
                None,
                solutions,
                ctypes.byref(count),
                len(solutions),
            )
            offered = [address or 0 for address in solutions[: count.value]]
            for solution in offered:
                stack.enter_context(releasing(partial(library.call, "miopenDestroySolution", solution)))
            yield [(self._describe(solution), solution) for solution in offered]

    def run_found(self, solution: int, workspace: Optional[Buffer] = None) -> None:
        """Run the solution at an address from ``found_solutions``."""
        arguments = (_TensorArgument * len(self.tensors))(
            *(
                _TensorArgument(_TENSOR_IDS[name], None, tensor.buffer.address)
                for name, tensor in self.tensors.items()
            )
        )
        self.miopen.library.call(
            "miopenRunSolution", self.miopen.handle, solution, len(arguments), arguments, *_memory(workspace)
        )

    def _describe(self, solution: int) -> Found:
        library = self.miopen.library
        size, time, solver, algorithm = SIZE(), ctypes.c_float(), ctypes.c_uint64(), INT()
        library.call("miopenGetSolutionWorkspaceSize", solution, ctypes.byref(size))
        library.call("miopenGetSolutionTime", solution, ctypes.byref(time))
        library.call("miopenGetSolutionSolverId", solution, ctypes.byref(solver))
        library.call("miopenGetSolverIdConvAlgorithm", solver, ctypes.byref(algorithm))
        return Found(_algorithm(algorithm.value), solver.value, time.value, size.value)

    def _operands(self, names: str) -> list[int]:
        tensors = [self.tensors[name] for name in names]
        return [
            address for tensor in tensors for address in (tensor.descriptor.address, tensor.buffer.address)
        ]

    def _descriptors(self) -> list[int]:
        direction = self._direction
        first, second, result = (
            self.tensors[name].descriptor.address for name in direction.other_order + direction.result
        )
        return [first, second, self.descriptor.address, result]

    def _call(self, template: str, *arguments: object) -> None:
        function = "miopenConvolution" + template.format(self._direction.name)
        self.miopen.library.call(function, self.miopen.handle, *arguments)


#: Number of bytes before and after a result that are checked for stray writes. It is a multiple of every
#: alignment that a kernel can need, so the result stays aligned.
MARGIN = 4096


@contextmanager
def convolution(
    hip: Hip, miopen: MiopenLibrary, problem: Problem, direction: str, contents: dict[str, bytes]
) -> Iterator[Convolution]:
    """Yield a convolution whose tensors are on the device.

    ``contents`` has the bytes of the operands, keyed by "x", "w" and "y", in PyTorch's layout (NHWC for
    channels-last). Raise ValueError for a transposed convolution.
    """
    if problem.transposed:
        raise ValueError(f"{problem.text}: MIOpen computes this as backward data of another convolution")
    # Like PyTorch, compute a 1-d convolution as a 2-d convolution of height one.
    lifted = (1,) if problem.rank == 1 else ()
    shapes = {"x": problem.input_shape, "w": problem.weight_shape, "y": problem.output_shape}
    result = _DIRECTIONS[direction].result
    itemsize = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[problem.dtype]
    with ExitStack() as stack:
        tensors = {}
        for name, shape in shapes.items():
            lifted_shape = (*shape[:2], *lifted, *shape[2:])
            descriptor = miopen.tensor_descriptor(problem.dtype, lifted_shape, problem.channels_last)
            stack.enter_context(releasing(partial(miopen.destroy_tensor_descriptor, descriptor)))
            size = itemsize
            for length in shape:
                size *= length
            buffer = stack.enter_context(hip.allocate(size, MARGIN if name == result else 0))
            if name == result:
                # 0xFF bytes are NaN in every dtype, so elements that a kernel does not write are visible.
                buffer.fill(0xFF)
            else:
                buffer.write(contents[name])
            tensors[name] = Tensor(descriptor, buffer)
        descriptor = miopen.convolution_descriptor(
            tuple(0 for _ in lifted) + problem.padding,
            lifted + problem.stride,
            lifted + problem.dilation,
            problem.groups,
        )
        stack.enter_context(releasing(partial(miopen.destroy_convolution_descriptor, descriptor)))
        yield Convolution(miopen, descriptor, tensors, direction)


def _memory(workspace: Optional[Buffer]) -> tuple[Optional[int], int]:
    return (workspace.address, workspace.size) if workspace else (None, 0)


def _algorithm(number: int) -> str:
    return ALGORITHMS.get(number, f"algorithm {number}")
