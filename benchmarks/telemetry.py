"""Cost of sampling a run: CPU seconds of its threads relative to the elapsed seconds.

The benchmark samples the tree of a machine below --root (a recorded tree, or / for this machine) as a run
does, for --seconds, while the process does nothing else. CPU time is that of the process::

    python benchmarks/telemetry.py --root TREE --seconds 60 -o benchmarks/results/telemetry.json
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from figures import publish

from rocmprobe.detect.sensors import find_devices
from rocmprobe.detect.tree import Tree
from rocmprobe.engine.sampling import NAME, Sampler, sampled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    tree = Tree(options.root)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sampler = Sampler(folder, True, tree)
        wall, cpu = time.perf_counter(), time.process_time()
        sampler.start()
        time.sleep(options.seconds)
        sampler.stop()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        samples = sum(device.samples for device in sampled(folder))
        size = (folder / NAME).stat().st_size
    publish(
        {
            "devices": [device.name for device in find_devices(tree)],
            "seconds": round(wall, 1),
            "samples": samples,
            "cpu_seconds": round(cpu, 4),
            "share_of_a_core": round(cpu / wall, 6),
            "bytes_a_sample": round(size / samples),
        },
        options.output,
    )


if __name__ == "__main__":
    main()
