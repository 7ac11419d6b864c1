#!/bin/bash
# Gathers all results, of earlier arrays too, in one table. submit.sh starts it.
#SBATCH --job-name=rocmprobe-table
#SBATCH --output=results/table.log
#SBATCH --ntasks=1
#SBATCH --time=30

exec "${ROCMPROBE:-rocmprobe}" table --by-folder "$SLURM_SUBMIT_DIR/results" -o "$SLURM_SUBMIT_DIR/results/table.html"
