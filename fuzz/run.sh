#!/usr/bin/env bash
# run.sh SECONDS [TARGET...]: fuzzes each target, or those named, for so long, three at a time, from the corpus of earlier
# runs, the seeds that a program makes, and those by hand. Says what each did, and ends with an error where one crashed; what
# crashed it is in artifacts/. FUZZ_SANITIZER is `address` unless set; with `none`, targets are built in half of the time.
# FUZZ_SEED is 0 unless set, which draws another one for each run; with any other, the same sources try the same inputs in the
# same order.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly seconds=${1:?how many seconds}
shift
if [ "$#" -eq 0 ]; then set -- attention c_abi graph_json onnx openvino pointwise rust_api select; fi

# Both cores build; what is lost in speed is little.
export units=--codegen-units=16 sanitizer=--sanitizer=${FUZZ_SANITIZER:-address}

# fuzz SECONDS TARGET: the last lines of a run, or all of one that failed.
fuzz() {
    local folders=("corpus/$2" "generated/$2") flags=(-max_len=2000)
    if [ -d "seeds/$2" ]; then folders+=("seeds/$2"); fi
    if [ "$2" = graph_json ]; then
        folders+=(../examples/graphs)
        flags=(-max_len=8192 -dict=graph_json.dict)
    fi
    if [ "$2" = onnx ]; then flags=(-max_len=4096 -dict=onnx.dict); fi
    if [ "$2" = openvino ]; then flags=(-max_len=8192 -dict=openvino.dict); fi
    mkdir -p "corpus/$2" artifacts
    # Standard output is closed: it is full of what the library says there, and of nothing else.
    flags+=(-max_total_time="$1" -seed="${FUZZ_SEED:-0}" -len_control=0 -timeout=60 -rss_limit_mb=3000 -close_fd_mask=1 -print_final_stats=1)
    local log=artifacts/$2.log
    if ! cargo +nightly fuzz run "$units" "$sanitizer" "$2" "${folders[@]}" -- "${flags[@]}" >"$log" 2>&1; then
        cat "$log"
        return 1
    fi
    echo "$2: $(grep -o '^#.*DONE.*corp' "$log" | sed 's/ corp//')"
}
export -f fuzz

CARGO_PROFILE_DEV_DEBUG=0 cargo run --quiet --locked --example seeds --no-default-features
cargo +nightly fuzz build "$units" "$sanitizer"
printf '%s\n' "$@" | xargs -P 3 -I '{}' bash -euo pipefail -c 'fuzz "$1" "$2"' - "$seconds" '{}'
