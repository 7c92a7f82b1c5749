#!/usr/bin/env bash
# Evaluates under slurm, one process a GPU.
#   bash tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [flags]
# GPUS (8), GPUS_PER_NODE (8), CPUS_PER_TASK (5), SRUN_ARGS. GPUS_PER_NODE=0
# asks for none, and the GPUS processes run on CPUs.
source "$(dirname "$0")/launch.sh"
need 4 $#
with_srun "$1" "$2" test.py "$3" "$4" --launcher slurm "${@:5}"
