#!/bin/bash
# Slurm's HealthCheckProgram: drains this node where the GPU has a problem, with the verdict as the reason.
# It never resumes a node. What is busy, unknown or without a GPU is only logged.
#
# slurmd starts it with SLURMD_NODENAME and no other variable, and kills it after 60 s. The settings are in
# rocmprobe.env beside this file.
BUDGET=${BUDGET:-50}
set -a
# shellcheck source=rocmprobe.env
. "${0%/*}/rocmprobe.env"
set +a

verdict=$("$ROCMPROBE" check ${RESULTS:+"$RESULTS"} --budget "$BUDGET")
logger --tag rocmprobe -- "$SLURMD_NODENAME: ${verdict:-no verdict}"

# The word is read and not the exit code, which is 1 for a broken Python, too.
case $verdict in
problem:*) ;;
*) exit 0 ;;
esac
# A reason that is there stays: somebody may have drained the node for something else.
case $(sinfo --noheader --nodes="$SLURMD_NODENAME" --format=%T) in
drain*) ;;
*) scontrol update NodeName="$SLURMD_NODENAME" State=DRAIN Reason="rocmprobe: $verdict" ;;
esac
