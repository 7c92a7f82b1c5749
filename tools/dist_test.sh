#!/usr/bin/env bash
# Evaluates on several processes of one or more machines, one a GPU; without
# GPUs the processes share the CPU.
#   bash tools/dist_test.sh CONFIG CHECKPOINT PROCESSES [flags of tools/test.py]
# NNODES, NODE_RANK, MASTER_ADDR, PORT: as torchrun's, for several machines.
source "$(dirname "$0")/launch.sh"
need 3 $#
with_torchrun "$3" test.py "$1" "$2" --launcher pytorch "${@:4}"
