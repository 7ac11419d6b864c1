#!/bin/bash
# Runs `rocmprobe run` once on each node, as a job array:
#
#   ./submit.sh [OPTIONS OF rocmprobe run]
#
# results/NODE/ARRAY_TASK/ are the folders of the runs.
#
# Variables:
#   SBATCH_PARTITION, SBATCH_ACCOUNT, ...   as sbatch reads them
#   NODES       the nodes, such as gpu[01-16]; default: all of the partition that can run jobs
#   ROCMPROBE   the program, if it is not on the PATH of a job
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)

mapfile -t nodes < <(
    sinfo --Node --noheader --format=%N --states=idle,mixed,allocated,completing \
        ${NODES:+--nodes="$NODES"} ${SBATCH_PARTITION:+--partition="$SBATCH_PARTITION"} | sort --unique
)
if [ ${#nodes[@]} -eq 0 ]; then
    echo "submit.sh: no node can run jobs; see sinfo" >&2
    exit 2
fi

mkdir -p results
array=$(sbatch --parsable --hold --array="1-${#nodes[@]}" "$here/array.sh" "$@")
array=${array%%;*} # JOB;CLUSTER where there are several clusters
# Of itself an array may run two tasks on one node, and none on another.
for task in "${!nodes[@]}"; do
    scontrol update JobId="${array}_$((task + 1))" ReqNodeList="${nodes[task]}"
done
scontrol release "$array"
echo "array $array on ${#nodes[@]} nodes; then compare them: rocmprobe compare results/*/*"
