"""Rules that draw inferences from a log: about scope, failure, owner, arithmetic, chip and stack.

A rule is one function that reads a ``LogContext``. Its docstring has the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rocmprobe.explain import arithmetic, driver, libraries, owners, scope
from rocmprobe.explain.extraction import reports_failure
from rocmprobe.explain.inference import ENDED, Inference, LogContext
from rocmprobe.knowledge.compatibility import THIS


def more_than_remarks(context: LogContext) -> Iterator[Inference]:
    """Infer that a log is not harmless, because a line that is not a known harmless remark reports a failure.

    Source: the remarks of data/signatures.toml.
    """
    if context.structure.failed and "remark" in context.words and not context.fatal:
        remarks = {
            line.number for hit in context.hits if hit.signature.kind == "remark" for line in hit.lines
        }
        failing = (line for line in context.lines if reports_failure(line.text))
        other = (line for line in failing if line.number not in remarks | context.structure.excused)
        if line := next(other, None):
            yield Inference(f"line {line.number} reports a failure", {"benign-warning": -4.0})


def only_warnings(context: LogContext) -> Iterator[Inference]:
    """Infer that the log reports no error, because it ends in a warning or has only harmless messages.

    Source: Python warnings; torch's and glog's levels.
    """
    if context.structure.failed or context.fatal or context.words & ENDED:
        return
    # If the log has a known harmless warning ("remark"), the warning's signature has already given points,
    # so this rule adds only a few points.
    points = {"benign-warning": 0.6 if "remark" in context.words else 3.4}
    if context.structure.harmless:
        yield Inference(
            "the log has only messages that working programs also print, and no line reports another error",
            points,
        )
    elif context.structure.warned:
        yield Inference("the log ends in a warning, and no line reports an error", points)


#: Relations of data/compatibility.toml that affect every GPU program, not only users of a certain library.
_OF_THE_PROGRAM = frozenset(
    {
        "torch-is-for-amd", "torch-has-code", "wheel-has-code", "amd-wheel-has-code", "package-has-code",
        "silicon-fits-override", "override-is-accepted",
    }
)  # fmt: skip


def facts_alone(context: LogContext) -> Iterator[Inference]:
    """Infer the cause from facts if chip and stack are incompatible and no signature explains the failure.

    Source: data/compatibility.toml.
    """
    if context.fatal or context.structure.warned or not context.structure.failed:
        return
    # If a line shows a known symptom, e.g. a hang, ``weigh`` already counts incompatible facts as evidence.
    if any(hit.signature.shows for hit in context.hits):
        return
    if not context.words & {"torch", "llama"}:
        return
    for answer in context.refused:
        if answer.relation.name not in _OF_THE_PROGRAM:
            continue
        weights = [
            (weight, name) for points in answer.relation.no.values() for name, weight in points.items()
        ]
        weight, name = max(weights, default=(0.0, ""))
        if weight > 0:
            cause = answer.cause if name == THIS else name
            yield Inference(f"the log names no failure, but the facts do: {answer.says}", {cause: 2.6})
            return


Rule = Callable[[LogContext], Iterable[Inference]]

RULES: tuple[Rule, ...] = (
    libraries.absent_release,
    libraries.clashing_packages,
    scope.disk_full,
    scope.installer,
    scope.other_vendor,
    scope.other_interface,
    scope.network,
    scope.known_elsewhere,
    scope.missing_module,
    scope.plain_error,
    more_than_remarks,
    only_warnings,
    driver.kernel_assertion,
    driver.unfit_module,
    driver.kernel_crash,
    driver.gpu_start,
    driver.kfd_error,
    owners.owner,
    driver.page_fault,
    owners.too_large_group,
    driver.nothing_seen,
    owners.assertion,
    libraries.shadowed_library,
    libraries.own_runtime_in_wsl,
    libraries.other_release,
    libraries.absent_library,
    libraries.absent_dll,
    libraries.absent_command,
    libraries.unfit_binary,
    libraries.other_python,
    libraries.triton_of_nvidia,
    libraries.extension_for_cuda,
    libraries.extension_for_rocm,
    libraries.extension_without_kernels,
    libraries.mixed_builds,
    owners.compiled_by_another,
    libraries.wanted_release,
    driver.as_root,
    owners.failed_build,
    driver.kernel_errno,
    arithmetic.memory,
    arithmetic.shared_memory,
    arithmetic.overflow,
    facts_alone,
)


def reason(context: LogContext) -> tuple[Inference, ...]:
    """Return the inferences of all rules, in the order of RULES.

    Stop after a rule that shows that AMD's stack has no part in the failure.
    """
    found: list[Inference] = []
    for rule in RULES:
        for inference in rule(context):
            found.append(inference)
            if inference.elsewhere:
                return tuple(found)
    return tuple(found)
