#!/usr/bin/env bash
# Finds or makes the Python environment of a stack.
#
#   source tools/setup_env.sh && ensure_environment   # sets PYTHON
#   bash tools/setup_env.sh                            # makes it, prints PYTHON
#
# STACK          maintained (the default) or upstream
# PYTHON         used as it is when it imports torch, mmcv.ops and mmdet;
#                otherwise the interpreter the environment is made with
# MMRANK_WHEELS  a folder with a compiled mmcv wheel, looked into first
# MMRANK_VENVS   a folder for environments that several checkouts share;
#                without it: .venv-<stack> in this checkout

MMRANK_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

_say() { echo "[environment] $*" >&2; }

_has_stack() {
    "$1" -c 'import torch, mmcv.ops, mmdet' > /dev/null 2>&1
}

# --------------------------------------------------------------- choosing
_fits() {  # interpreter stack
    local newest=13
    [ "$2" = upstream ] && newest=11
    "$1" -c "import sys, venv, ensurepip
sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $newest))" \
        > /dev/null 2>&1
}

_base_python() {  # stack
    local candidate
    for candidate in "${PYTHON:-}" python3.11 python3.12 python3.10 \
            python3.13 python3 python; do
        [ -n "$candidate" ] || continue
        if _fits "$candidate" "$1"; then
            command -v "$candidate"
            return
        fi
        [ "$candidate" = "${PYTHON:-}" ] && \
            _say "PYTHON=$PYTHON does not suit the $1 stack; looking further"
    done
    local range='3.10 to 3.13'
    [ "$1" = upstream ] && range='3.10 or 3.11'
    _say "found no Python for the $1 stack; needed: $range with venv." \
         "Install one and name it: PYTHON=/path/to/python3.11 bash ..."
    return 1
}

_requirement_hash() {  # stack interpreter
    (cd "$MMRANK_ROOT/requirements" && cat build.txt "$1.txt" \
        mm-dependencies.txt optional.txt tests.txt; "$2" -V) \
        | cksum | cut -d ' ' -f 1
}

# ------------------------------------------------------------- installing
_pins() {  # stack pattern: the requirement lines that match it
    sed -e 's/ *#.*//' "$MMRANK_ROOT/requirements/$1.txt" | grep -E "$2"
}

_install_mmcv() {  # python requirement
    if [ -n "${MMRANK_WHEELS:-}" ]; then
        if "$1" -m pip install --no-deps --no-index --only-binary :all: \
                --find-links "$MMRANK_WHEELS" "$2" >&2; then
            return
        fi
        _say "no wheel of $2 for this Python in MMRANK_WHEELS=$MMRANK_WHEELS"
    fi
    _say "compiling $2: about half an hour on two cores, once." \
         "Started $(date +%H:%M). The compiler's lines follow."
    # without build isolation, or it builds without operators and says nothing
    MMCV_WITH_OPS=1 MAX_JOBS="${MAX_JOBS:-$(nproc 2> /dev/null || echo 2)}" \
        "$1" -m pip install --verbose --no-deps --no-build-isolation \
        --no-binary "${2%%==*}" "$2" >&2
}

_install() {  # python stack
    local pip=("$1" -m pip --disable-pip-version-check)
    local requirements="$MMRANK_ROOT/requirements" torch mm libraries line
    # shellcheck disable=SC2207  # a requirement holds no blank
    torch=($(_pins "$2" '^torch')) mm=($(_pins "$2" '^((onedl-)?mm|ima|lvis)'))
    # shellcheck disable=SC2207
    libraries=($(_pins "$2" '^(numpy|opencv)'))
    _say "1/5 build tools" && "${pip[@]}" install -q \
        -r "$requirements/build.txt" >&2 || return 1
    _say "2/5 ${torch[*]} (some GB to fetch)" && "${pip[@]}" install \
        "${torch[@]}" "${libraries[@]}" >&2 || return 1
    _say "3/5 ${mm[*]}"
    for line in "${mm[@]}"; do
        if [[ $line == *mmcv* ]]; then
            _has_operators "$1" || _install_mmcv "$1" "$line" || return 1
        else
            "${pip[@]}" install -q --no-deps --no-build-isolation "$line" \
                >&2 || return 1
        fi
    done
    _say "4/5 the libraries they import" && "${pip[@]}" install -q \
        -r "$requirements/mm-dependencies.txt" "${torch[@]}" \
        "${libraries[@]}" >&2 || return 1
    _say "5/5 tests and optional libraries" && "${pip[@]}" install -q \
        -r "$requirements/tests.txt" "${torch[@]}" "${libraries[@]}" >&2
}

_has_operators() {
    "$1" -c 'import mmcv.ops' > /dev/null 2>&1
}

# ------------------------------------------------------------ entry point
ensure_environment() {
    local stack="${STACK:-maintained}" base venv marker hash
    if [ ! -f "$MMRANK_ROOT/requirements/$stack.txt" ] \
            || [[ $stack != maintained && $stack != upstream ]]; then
        _say "STACK=$stack is unknown; choose maintained or upstream"
        return 1
    fi
    export PYTHONPATH="$MMRANK_ROOT${PYTHONPATH:+:$PYTHONPATH}"
    if [ -n "${PYTHON:-}" ]; then
        if _has_stack "$PYTHON"; then
            _say "using $(command -v "$PYTHON"), which has the stack"
            export PYTHON
            return
        fi
        _say "PYTHON=$PYTHON does not import torch, mmcv.ops and mmdet;" \
             "making an environment of its own"
    fi
    base="$(_base_python "$stack")" || return 1
    hash="$(_requirement_hash "$stack" "$base")"
    if [ -n "${MMRANK_VENVS:-}" ]; then
        venv="$MMRANK_VENVS/$stack-$hash"
    else
        venv="$MMRANK_ROOT/.venv-$stack"
    fi
    marker="$venv/installed-$hash"
    mkdir -p "$(dirname "$venv")"
    (
        # two runs at once: the second waits, then finds it made
        command -v flock > /dev/null && flock 9
        if [ -f "$marker" ] && _has_stack "$venv/bin/python"; then
            _say "using $venv"
            exit 0
        fi
        # an interrupted run leaves an environment without its marker; pip
        # goes on where it stopped, a broken interpreter is made anew
        if ! "$venv/bin/python" -m pip -V > /dev/null 2>&1; then
            _say "making $venv with $("$base" -V) for the $stack stack"
            "$base" -m venv --clear "$venv" >&2 || exit 1
        else
            _say "completing $venv for the $stack stack"
        fi
        if ! _install "$venv/bin/python" "$stack"; then
            _say "the installation stopped; its error is above." \
                 "Run the same command again to go on where it stopped."
            exit 1
        fi
        (cd "$MMRANK_ROOT" && "$venv/bin/python" -m mmrank check >&2) \
            || exit 1
        rm -f "$venv"/installed-* && touch "$marker"
        _say "made $venv"
    ) 9> "$venv.lock" || return 1
    PYTHON="$venv/bin/python"
    export PYTHON
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
    ensure_environment && echo "$PYTHON"
fi
