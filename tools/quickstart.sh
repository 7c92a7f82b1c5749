#!/usr/bin/env bash
# Makes the environment, trains a job on an embedded data set, evaluates it
# and writes pictures. A second run reuses what is there.
#   bash tools/quickstart.sh [detection|retrieval|descriptors] [--compare]
# --compare also trains the job's baseline under the same budget.
# STACK, PYTHON, MMRANK_WHEELS and MMRANK_VENVS: see tools/setup_env.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() { sed -n '2,6p' tools/quickstart.sh | cut -c 3-; }

job=detection
compare=
for argument in "$@"; do
    case "$argument" in
        detection | retrieval | descriptors) job="$argument" ;;
        --compare) compare=yes ;;
        -h | --help) usage; exit ;;
        *) echo "quickstart.sh knows no '$argument'" >&2; usage >&2; exit 2 ;;
    esac
done

source tools/setup_env.sh
ensure_environment
work="work_dirs/quickstart"

run() {  # shows a command, then runs it
    echo "[quickstart] $*"
    "$@"
}

python() { "$PYTHON" "$@"; }

# Trains a config once: an interrupted run goes on where it stopped, a
# finished one is kept until its config changes.
train_once() {  # config work_dir
    local done="$2/finished"
    if [ -f "$done" ] && ! [ "$1" -nt "$done" ]; then
        echo "[quickstart] reusing $2"
        return
    fi
    run python tools/train.py "$1" --work-dir "$2" --resume
    touch "$done"
}

last_checkpoint() {  # work_dir
    cat "$1/last_checkpoint"
}

# ----------------------------------------------------------------- the jobs
# Each makes its data where it is missing, trains, tests and draws.

detection() {
    local out="$work/detection" runs=()
    run python tools/dataset_converters/digits_on_photos.py \
        --out-dir data/digits_on_photos
    detector RaMBO rambo
    if [ -n "$compare" ]; then
        detector CE ce
    fi
    run python tools/analysis_tools/precision_recall.py \
        configs/rambo/faster-rcnn_r18_fpn_rambo_digits.py "${runs[@]}" \
        --out-dir "$out/pictures" --zoom 3
}

detector() {  # name to print, loss as in the config's name; adds to runs
    local config="configs/rambo/faster-rcnn_r18_fpn_${2}_digits.py"
    train_once "$config" "$out/$2"
    run python tools/test.py "$config" "$(last_checkpoint "$out/$2")" \
        --work-dir "$out/$2/test" --out "$out/$2/results.pkl"
    runs+=("$1=$out/$2/results.pkl")
}

retrieval() {
    # rendered in memory from matplotlib's fonts: no data to make
    embedding proxy_anchor/proxy-anchor_small_glyphs
    if [ -n "$compare" ]; then
        embedding proxy_anchor/proxy-nca_small_glyphs
    fi
}

embedding() {  # config, without configs/ and .py
    local out="$work/retrieval/${1#*/}"
    train_once "configs/$1.py" "$out"
    run python tools/test.py "configs/$1.py" "$(last_checkpoint "$out")" \
        --work-dir "$out/test"
    local picture
    for picture in neighbours embedding; do
        cp "$(find "$out/test" -name "${picture}_*.png" | sort | tail -n 1)" \
            "$out/$picture.png"
        echo "[quickstart] picture: $out/$picture.png"
    done
}

descriptors() {
    local data=data/photo_patches configs=configs/adasample
    local config="$configs/l2net-small_adasample_photo-patches.py"
    local baseline="$configs/l2net-small_hardnet_photo-patches.py"
    [ -f "$data/photo_patches.json" ] || \
        run python tools/dataset_converters/photo_patches.py "$data"
    train_once "$config" "$work/descriptors"
    run python tools/test.py "$config" "$(last_checkpoint "$work/descriptors")"
    run python tools/analysis_tools/draw_matches.py "$config" \
        "$(last_checkpoint "$work/descriptors")" "$work/descriptors/matches.png"
    if [ -n "$compare" ]; then
        train_once "$baseline" "$work/descriptors_hardnet"
        run python tools/test.py "$baseline" \
            "$(last_checkpoint "$work/descriptors_hardnet")"
    fi
}

"$job"
echo "[quickstart] $job done in $((SECONDS / 60)) min $((SECONDS % 60)) s;" \
     "see $work/$job"
