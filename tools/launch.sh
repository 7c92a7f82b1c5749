# shellcheck shell=bash
# Sourced by the scripts that start several processes.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"

# need LEAST GIVEN: with fewer arguments, the caller's head and exit code 2
need() {
    if [ "$2" -lt "$1" ]; then
        sed -n '2,5p' "$0" | cut -c 3- >&2
        exit 2
    fi
}

# with_torchrun PROCESSES SCRIPT [its arguments]
with_torchrun() {
    export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
    exec "${PYTHON:-python}" -m torch.distributed.run \
        --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
        --master_addr="${MASTER_ADDR:-127.0.0.1}" \
        --master_port="${PORT:-29500}" --nproc_per_node="$1" \
        "$here/$2" "${@:3}"
}

# with_srun PARTITION JOB_NAME SCRIPT [its arguments]
with_srun() {
    local per_node="${GPUS_PER_NODE:-8}"
    local resources=(--gres="gpu:$per_node" --ntasks-per-node="$per_node")
    [ "$per_node" = 0 ] && resources=()
    # shellcheck disable=SC2086  # SRUN_ARGS is a list of flags
    exec srun -p "$1" --job-name="$2" "${resources[@]}" \
        --ntasks="${GPUS:-8}" --cpus-per-task="${CPUS_PER_TASK:-5}" \
        --kill-on-bad-exit=1 ${SRUN_ARGS:-} "${PYTHON:-python}" -u \
        "$here/$3" "${@:4}"
}
