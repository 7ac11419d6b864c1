#!/bin/bash
# One task of the array: `rocmprobe run` on this node. submit.sh starts it.
#SBATCH --job-name=rocmprobe
#SBATCH --output=results/%A_%a.log
#SBATCH --nodes=1
#SBATCH --ntasks=1
# All processors and GPUs of the node, and all its memory.
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --time=60
# A task that cannot start by then is given up.
#SBATCH --deadline=now+1days
# A node that died in the run would be made to die again.
#SBATCH --no-requeue

# With exec Slurm's SIGTERM at the end of the time reaches rocmprobe, which writes what it has.
exec "${ROCMPROBE:-rocmprobe}" run "$@" \
    --out "$SLURM_SUBMIT_DIR/results/$SLURMD_NODENAME/${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
