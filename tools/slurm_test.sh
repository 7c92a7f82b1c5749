#!/usr/bin/env bash
# Evaluates under slurm, one process a GPU.
#   bash tools/slurm_test.sh PARTITION JOB_NAME CONFIG CHECKPOINT [flags]
# GPUS (8), GPUS_PER_NODE (8), CPUS_PER_TASK (5), SRUN_ARGS. GPUS_PER_NODE=0
# asks for none, and the GPUS processes run on CPUs.
set -euo pipefail
if [ $# -lt 4 ]; then
    sed -n '2,5p' "$0" | cut -c 3- >&2
    exit 2
fi
here="$(cd "$(dirname "$0")" && pwd)"
gpus="${GPUS:-8}"
per_node="${GPUS_PER_NODE:-8}"
resources=(--gres="gpu:$per_node" --ntasks-per-node="$per_node")
[ "$per_node" = 0 ] && resources=()
# shellcheck disable=SC2086  # SRUN_ARGS is a list of flags
exec srun -p "$1" --job-name="$2" "${resources[@]}" --ntasks="$gpus" \
    --cpus-per-task="${CPUS_PER_TASK:-5}" --kill-on-bad-exit=1 \
    ${SRUN_ARGS:-} "${PYTHON:-python}" -u "$here/test.py" "$3" "$4" \
    --launcher slurm "${@:5}"
