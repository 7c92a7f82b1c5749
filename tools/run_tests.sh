#!/usr/bin/env bash
# Runs the tests: bash tools/run_tests.sh [pytest arguments]
# STACK, PYTHON, MMRANK_WHEELS and MMRANK_VENVS: see tools/setup_env.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
case "${1:-}" in
    -h | --help) sed -n '2,3p' tools/run_tests.sh | cut -c 3-; exit ;;
esac
source tools/setup_env.sh
ensure_environment || exit 1
if ! "$PYTHON" -c 'import pytest, hypothesis, sklearn, skimage' 2> /dev/null
then
    echo "$PYTHON lacks what the tests import; install it with" >&2
    echo "    $PYTHON -m pip install -r requirements/tests.txt" >&2
    exit 1
fi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
exec "$PYTHON" -m pytest "$@"
