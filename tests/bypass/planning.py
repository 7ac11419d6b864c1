"""The plan that the cost model ranks first, for a problem without tensors."""

from dataclasses import replace

from rocmprobe.bypass.choice.choices import task_of
from rocmprobe.bypass.choice.cost_model import USUAL, candidates, ranked


def plan(
    direction, input_shape, weight_shape, *, dtype="float32", device_type="cpu", dense=True, workspace_mb=256,
    algorithm="auto", **options,
):  # fmt: skip
    fields = {
        "input_shape": input_shape, "weight_shape": weight_shape, "transposed": False, "groups": 1,
        "output_padding": (0,) * (len(weight_shape) - 2), "channels_last": False, **options,
    }  # fmt: skip
    task = task_of(fields.__getitem__, direction, dtype, device_type, int(workspace_mb * 2**20))
    return ranked(candidates(replace(task, dense=dense), algorithm), USUAL[device_type])[0]
