#!/usr/bin/env bash
# Trains under slurm, one process a GPU.
#   bash tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [flags]
# GPUS (8), GPUS_PER_NODE (8), CPUS_PER_TASK (5), SRUN_ARGS. GPUS_PER_NODE=0
# asks for none, and the GPUS processes train on CPUs.
source "$(dirname "$0")/launch.sh"
need 4 $#
with_srun "$1" "$2" train.py "$3" --work-dir "$4" --launcher slurm "${@:5}"
