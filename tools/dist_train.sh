#!/usr/bin/env bash
# Trains on several processes of one or more machines, one a GPU; without
# GPUs the processes share the CPU.
#   bash tools/dist_train.sh CONFIG PROCESSES [flags of tools/train.py]
# NNODES, NODE_RANK, MASTER_ADDR, PORT: as torchrun's, for several machines.
source "$(dirname "$0")/launch.sh"
need 2 $#
with_torchrun "$2" train.py "$1" --launcher pytorch "${@:3}"
