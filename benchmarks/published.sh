# The commands behind some of results/, one function for each, to be run on a GPU:
#
#     . benchmarks/published.sh DATA; few_labels cifar 6 batch he
#
# Every variant is searched alike, the default loss beside the paper's; other seeds are judged. `python -m
# benchmarks.publish` puts what they leave in out/ into results/. Commands go on where they stopped.

data=${1:?the data folder}
paper="--set scale=sum --set gradient=both --set reduction=sum"

few_labels() {  # TASK DEPTH NORM START: digits, blur or cifar; 3 or 6; none or batch; torch or he
    local cell=$1-$2-$3-$4 all=Std,Ort,RR,lRR
    [ "$3" = none ] && all=Std,Ort,OrtB,Pre,RR,lRR
    local base="few-labels --engine vmap --device cuda --cuda-graphs --data $data --set task=$1 --set depth=$2 --set norm=$3 --set start=$4"
    _both "$base" $all "$cell" "" 2
}

long_training() {  # DEPTH NORM: 6 or 9; none or batch. With batch norm Std alone, as the row to reach.
    local base="long-training --device cuda --cuda-graphs --data $data --set depth=$1 --set norm=$2 --set images=14000 --set precision=bfloat16"
    if [ "$2" = batch ]; then
        _one "$base" Std "long-$1-$2" "--seeds 1" 4
    else
        _both "$base" Std,Ort,RR,lRR "long-$1-$2" "--seeds 1" 4
    fi
}

sequences() {  # TASK CELL: rows, add or copy; lstm, gru or rnn
    _one "sequences --device cuda --cuda-graphs --data $data --set task=$1 --set cell=$2" Std,Ort,RR,lRR "sequences-$1-$2" "" 4
}

hindcast() {  # SYSTEM VISCOSITY: waves with 0, 0.2 or 2, or advection with 0. It needs no data
    local base="hindcast --device cuda --cuda-graphs --workers 4 --set system=$1 --set viscosity=$2" found="out/search-hindcast-$1-$2"
    racecar search $base --out "$found" &&
        racecar run $base --resume --tuned "$found/tuned.json" --out "out/hindcast-$1"  # one folder: claims compare viscosities
}

shift_seen() {  # TASK NORM: digits or cifar; none or batch
    local base="shift --engine vmap --device cuda --cuda-graphs --data $data --set task=$1 --set norm=$2 --set start=torch"
    _both "$base" Std,Ort,RR,lRR "shift-$1-$2" "" 2
}

texture_shape() {  # SETTING: paper, strong or batch
    local set=""
    [ "$1" != paper ] && set="--set augment=strong --set start=he"
    [ "$1" = batch ] && set="$set --set norm=batch"
    local base="texture-shape --device cuda --cuda-graphs --data $data --set precision=bfloat16 --set cost=1.6 $set"
    _one "$base" Std,WD,Ort,Pre,RR,lRR "texture-$1" "--seeds 1" 5 "--first-seed 10" &&
        _one "$base $paper" RR "texture-$1-paper" "--seeds 1" 5 "--first-seed 10"
    [ "$1" = paper ] && racecar run $base --set split=random --first-seed 10 --resume --workers 5 --variants Std,Ort,RR \
        --tuned "out/search-texture-$1/tuned.json" --out "out/texture-$1-random"
}

disentangle() {  # NORM CODE: true or false; one-hot or number
    _one "disentangle --device cuda --cuda-graphs --data $data --set norm=$1 --set code=$2" Std,RR1,InfoGAN,Free "disentangle-$2-norm-$1" "--seeds 1" 8
}

disentangle_generators() {  # NORM CODE: the generators of seed 0 by themselves, and what racecar inspect sees in RR1's
    local cell="$2-norm-$1" suffix=$2 target=${2/-/_} inputs=74
    [ "$2" = number ] && inputs=65
    [ "$1" = true ] && suffix=$suffix-norm target=${target}_norm
    python -m benchmarks.generators "out/disentangle-$cell" out/generators &&
        racecar inspect "racecar_lab.experiments.disentangle.generators:$target" --weights "out/generators/RR1-$suffix.safetensors" \
            --data "out/generators/inputs-$2.safetensors" --input 64,$inputs --out "out/generators/RR1-$suffix"
}

smoke_epochs() {  # was run first, and chose 800: the fewest epochs with which Std's L2 is within 2 % of the best, on held-out plumes
    for epochs in 100 200 400 800; do
        racecar run smoke --device cuda --cuda-graphs --data "$data" --workers 4 --variants Std --seeds 4 --first-seed 1000 \
            --set valid=0.25 --set epochs=$epochs --out "out/smoke-epochs/$epochs"
    done
}

smoke() {  # LOSS: default or paper; and the autoencoders. Both may run at once; above 1e-3 nets die on single seeds
    local base="--device cuda --cuda-graphs --data $data" lr="--seeds 2 --lr 1e-4,3e-4,1e-3"
    if [ "$1" = paper ]; then
        _smoke "$base $paper" RR smoke-paper "$lr --weight RR=0,1e-6,1e-5,1e-4" 4
    else
        _smoke "$base" Std,Ort,RR smoke "$lr --weight Ort=0,0.01,0.1,1 --weight RR=0,0.01,0.1,1" 11
    fi
}

_smoke() {  # OPTIONS VARIANTS CELL SEARCH-OPTIONS WORKERS
    _one "smoke $1" "$2" "$3" "$4" "$5" "--seeds 5" && _halves "$1" "$2" "$3" "" "$5" "out/search-$3/tuned.json"
}

smoke_small() {  # on two cores of a CPU, in an hour: a quarter of the channels, an eighth of the epochs
    local base="--data $data --set widths=8,16,16,8,8 --set critic_widths=8,16,32 --set epochs=100"
    local some="--seeds 10" first="--seeds 1 --lr 1e-3,3e-3"
    _one "smoke $base" Std,Ort,RR smoke-small "$first" 2 "$some" && _one "smoke $base $paper" RR smoke-small-paper "$first" 2 "$some"
}

halves_small() {  # VARIANTS, and the loss: default or paper. As smoke_small, whose GANs are taken if they are in out/
    local base="--data $data --set widths=8,16,16,8,8 --set critic_widths=8,16,32 --set epochs=100 --set autoencoder_epochs=50"
    local chosen=results/smoke/tuned.jsonl
    if [ "$2" = paper ]; then
        _halves "$base $paper" "$1" smoke-small-paper "--seeds 1" 2 $chosen#paper-small
    else
        _halves "$base" "$1" smoke-small "--seeds 1" 2 $chosen#default-small
    fi
}

_halves() {  # OPTIONS VARIANTS CELL SEARCH-OPTIONS WORKERS TUNED: what smoke's search chose, and then the autoencoders' own
    local all="smoke-autoencoder $1 --variants $2 --workers $5" ours="out/search-$3-$2-autoencoder"
    racecar search $all $4 --tuned $6 --out "$ours" &&
        racecar run $all --seeds 5 --resume --tuned "$ours/tuned.json" --out "out/$3"
}

streams_budget() {  # OPTIONS: what the search of all methods would take on one stream, timed
    racecar search streams --device cuda --data "$data" --budget "$@"
}

# Each of these is 15 processes that share the GPU (MPS), one for a method: its search, then the nets that are judged.
# Shorter than the protocols, to have all methods in nine minutes on an H200.
streams_labels() { _streams labels-mlp3 "--set stream=labels --set net=mlp3 --set tasks=16 --set passes=40" "$@"; }
streams_permuted() { _streams permuted-mlp3 "--set stream=permuted --set net=mlp3 --set tasks=80" "$@"; }
streams_cifar_labels() { _streams cifar-labels-kumar "--set stream=cifar-labels --set net=kumar --set tasks=14 --set passes=30 --set images=320" "$@"; }
streams_cifar_labels_batch() { _streams cifar-labels-kumar-batch "--set stream=cifar-labels --set net=kumar --set norm=batch --set tasks=14 --set passes=30 --set images=320" "$@"; }
streams_pairs() { _streams pairs-kumar "--set stream=pairs --set net=kumar --set tasks=120 --set passes=5 --set images=400 --set batch=20" "$@"; }
streams_kumar_labels() { _streams labels-mlp2 "--set stream=labels --set net=mlp2 --set tasks=8 --set passes=400" "$@"; }  # as many steps a task as Kumar et al.

_streams() {  # CELL OPTIONS METHODS...: all if none is given
    local cell=$1 base="streams --device cuda --data $data $2" all one
    shift 2
    [ $# -gt 0 ] || mapfile -t all < <(python -c "from racecar_lab.streams import METHODS; print('\n'.join(METHODS))")
    [ $# -eq 0 ] || all=("$@")
    printf '%s\0' "${all[@]}" | xargs -0 -P 15 -I{} bash -c "
        racecar search $base --variants '{}' --out 'out/search-$cell-{}' &&
        racecar run $base --resume --variants '{}' --tuned 'out/search-$cell-{}/tuned.json' --out 'out/$cell-{}'" || return 1
    mkdir -p "out/search-$cell/records"
    for one in "${all[@]}"; do cp "out/search-$cell-$one"/records/* "out/search-$cell/records/"; done
    racecar search $base --variants "$(IFS=,; echo "${all[*]}")" --out "out/search-$cell"  # finds all there, and writes one file
}

_both() {  # EXPERIMENT VARIANTS CELL SEARCH-OPTIONS WORKERS RUN-OPTIONS: the default loss, then the paper's
    _one "$1" "$2" "$3" "$4" "$5" "$6" && _one "$1 $paper" RR,lRR "$3-paper" "$4" "$5" "$6"
}

_one() {
    racecar search $1 $4 --workers "$5" --variants "$2" --out "out/search-$3" &&
        racecar run $1 $6 --resume --workers "$5" --variants "$2" --tuned "out/search-$3/tuned.json" --out "out/$3"
}
