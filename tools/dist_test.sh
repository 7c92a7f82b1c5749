#!/usr/bin/env bash
# Evaluates on several processes of one or more machines, one a GPU; without
# GPUs the processes share the CPU.
#   bash tools/dist_test.sh CONFIG CHECKPOINT PROCESSES [flags of tools/test.py]
# NNODES, NODE_RANK, MASTER_ADDR, PORT: as torchrun's, for several machines.
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,5p' "$0" | cut -c 3- >&2
    exit 2
fi
here="$(cd "$(dirname "$0")" && pwd)"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" \
    --master_port="${PORT:-29500}" --nproc_per_node="$3" \
    "$here/test.py" "$1" "$2" --launcher pytorch "${@:4}"
