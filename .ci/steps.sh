# What `.ci/run` and `.ci/long` share: how steps run, the tools that they install, and the checks of which the one runs a
# sample and the other everything. To be sourced by bash.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset STERNA_MAX_CPU_ISA STERNA_NUM_THREADS OMP_NUM_THREADS RUSTDOCFLAGS
# Everything is built once, and what fails is run again by hand where lines are wanted.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0

readonly cargo_fuzz_version=0.13.1
cargo_c_version=$(sed -nE 's/^cargo-c = "(.*)"$/\1/p' capi/Cargo.toml)
readonly cargo_c_version
readonly onednn_version=2026.1.0
readonly openvino_version=2026.4.1
readonly onnx_version=1.23.2
readonly torch_version=2.15.0
readonly oldest_torch_version=2.13.0
readonly transformers_version=5.24.0
readonly timm_version=1.0.31
readonly torchvision_version=0.29.2
readonly wasmtime_version=50.0.1
readonly maturin_version=1.16.0
readonly pdoc_version=16.0.0
readonly caches=${XDG_CACHE_HOME:-$HOME/.cache}
readonly onednn=$caches/sterna-onednn/$onednn_version
readonly openvino=$caches/sterna-openvino/$openvino_version
readonly onnx=$caches/sterna-onnx/$onnx_version
readonly python=$caches/sterna-python/$maturin_version-$pdoc_version
readonly wasmtime=$caches/sterna-wasmtime/$wasmtime_version
readonly torch=$caches/sterna-torch/$torch_version
readonly models=$caches/sterna-models/$torch_version-$transformers_version-$openvino_version
target=$(cargo metadata --no-deps --format-version 1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
readonly target
host=$(rustc -vV | sed -n 's/^host: //p')
readonly host

current=start
log=$(mktemp)
asides=$(mktemp -d)
declare -A pids
seconds_of_steps=()
finish() {
    local code=$?
    kill $(jobs -p) 2>/dev/null || true
    rm -rf "$log" "$asides"
    if [ "$code" -ne 0 ]; then echo "FAILED in step: $current" >&2; fi
}
trap finish EXIT

# step NAME COMMAND...: runs a command and says how long it took.
step() {
    current=$1
    shift
    echo
    echo "==> $current"
    local began=$SECONDS
    "$@"
    local seconds=$((SECONDS - began))
    seconds_of_steps+=("$seconds"$'\t'"$current")
    echo "<== $current: $seconds s"
}

# slowest_first: the seconds of all steps so far, a line each.
slowest_first() {
    printf '%s\n' "${seconds_of_steps[@]}" | sort -rn | awk -F '\t' '{ printf "%6d s  %s\n", $1, $2 }'
}

# timed COMMAND...: runs a command and says how long it took beside others.
timed() {
    local began=$SECONDS
    "$@"
    echo "took $((SECONDS - began)) s beside other steps"
}

# aside NAME COMMAND...: starts a command that leaves cores idle, beside the steps that follow.
aside() {
    local name=$1
    shift
    timed "$@" >"$asides/$name" 2>&1 &
    pids[$name]=$!
}

# join NAME: waits for what was started aside, and shows what it said.
join() {
    local code=0
    wait "${pids[$1]}" || code=$?
    cat "$asides/$1"
    return "$code"
}

# debian PACKAGE...: installs Debian packages, where there are any to install.
debian() {
    if [ "$#" -gt 0 ]; then
        apt-get update -qq && apt-get install --yes -qq --no-install-recommends "$@"
    fi
}

# crate NAME VERSION COMMAND OPTION...: installs a tool from the registry, if COMMAND does not say that it is there.
crate() {
    local name=$1 version=$2 command=$3
    shift 3
    if [[ "$($command --version 2>/dev/null)" != *"${version%%+*}"* ]]; then
        cargo install "$name" --version "$version" --locked "$@"
    fi
}

# python_packages FOLDER PACKAGE...: a virtual environment with these packages of PyPI, made once.
python_packages() {
    local folder=$1
    shift
    if [ ! -e "$folder/complete" ]; then
        python3 -m venv "$folder"
        "$folder/bin/pip" install --quiet "$@"
        touch "$folder/complete"
    fi
}

# The wheel of the Python package, in the release profile, and what its tests need beside it.
wheel() {
    python_packages "$python" "maturin==$maturin_version" "numpy>=2" hypothesis ml_dtypes mypy pandas \
        "pdoc==$pdoc_version" pytest
    rm -rf "$target/wheels"
    PATH=$python/bin:$PATH maturin build --release --quiet --locked --manifest-path python/Cargo.toml \
        --interpreter "$python/bin/python" --compression-level 9 --out "$target/wheels"
}

# wheel_alone FOLDER: the wheel works in a new environment that has what it asks for and no more.
wheel_alone() {
    python3 -m venv --clear "$1"
    "$1/bin/pip" install --quiet "$target"/wheels/*.whl
    "$1/bin/python" -c 'import sterna; assert sterna.select([True, False], 1.0, 0.0).tolist() == [1.0, 0.0]'
}

# python_tests FOLDER [ARGUMENT...]: the tests of the Python package with the wheel in the environment of a folder; all of
# them, or those that arguments of pytest name.
python_tests() {
    local folder=$1
    shift
    if [ "$#" -eq 0 ]; then set -- python/tests; fi
    "$folder/bin/pip" install --quiet --force-reinstall --no-deps "$target"/wheels/*.whl
    "$folder/bin/python" -m pytest --quiet -c python/pyproject.toml -p no:cacheprovider "$@"
}

# An environment with torch and transformers, and what reads what they export.
models_environment() {
    python_packages "$models" "torch==$torch_version" "transformers==$transformers_version" \
        "openvino==$openvino_version" onnx onnxscript onnxruntime
}

# exported_models ARGUMENT...: architectures of transformers, held against their peers by `.ci/models.py`.
exported_models() {
    models_environment
    "$models/bin/python" .ci/models.py "$@"
}

# What tests run where they are told that it is there: C compilers and valgrind, CMake and pkg-config, Chromium, qemu,
# and, from PyPI, oneDNN, OpenVINO and ONNX.
tools() {
    local packages=() command version
    for command in clang valgrind cmake pkg-config chromium g++; do
        command -v "$command" >/dev/null || packages+=("$command")
    done
    command -v chromedriver >/dev/null || packages+=(chromium-driver)
    command -v qemu-x86_64 >/dev/null || packages+=(qemu-user)
    python3 -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
    debian "${packages[@]}"
    # What AddressSanitizer of clang links is a package of its own, by the version of clang.
    version=$(clang -dumpversion)
    if [ ! -e "$(clang -print-file-name=libclang_rt.asan-x86_64.a)" ]; then
        debian "libclang-rt-${version%%.*}-dev"
    fi
    python_packages "$onednn" "onednn==$onednn_version" "onednn-devel==$onednn_version"
    python_packages "$openvino" "openvino==$openvino_version"
    python_packages "$onnx" "onnx==$onnx_version"
}

# The sources of the fuzzers are held to the same form as all others.
fuzz_sources() {
    crate cargo-fuzz "$cargo_fuzz_version" "cargo fuzz"
    cargo fmt --manifest-path fuzz/Cargo.toml --check
    cargo clippy --manifest-path fuzz/Cargo.toml --locked --all-targets --no-default-features -- -D warnings
}

# clippy_with_features FEATURES [TARGETS]: lints of the library with these features alone, and of its tests and benches
# unless targets are named.
clippy_with_features() {
    cargo clippy --package sterna "${2:---all-targets}" --no-default-features --features "$1" -- -D warnings
}

# sanitized SANITIZER ARGUMENT...: tests of the library under a sanitizer. The standard library comes without it; other
# people's code needs no optimisation here.
sanitized() {
    local sanitizer=$1
    shift
    RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer" \
        cargo +nightly test --config 'profile.test.package."*".opt-level=0' \
        --target "$host" --package sterna --all-features "$@"
}

# thread_sanitizer TEST...: tests that share things among threads, the same one left out.
thread_sanitizer() {
    local tests=() test
    for test in "$@"; do tests+=(--test "$test"); done
    TSAN_OPTIONS="suppressions=$PWD/.ci/thread-sanitizer.supp" sanitized thread "${tests[@]}" -- \
        --skip one_to_eight_threads_give_the_same_bits
}

# targets TRIPLE...: the standard libraries of other targets; what needs them is left out where rustup cannot bring them.
targets() {
    if ! rustup target add "$@"; then
        echo "left out: rustup brings no standard library for $*"
        return 1
    fi
}

# foreign ARCHITECTURE ARGUMENT...: tests of the library on an emulated machine of another architecture of Linux. Debian
# names the compiler that links for it by the architecture, its packages by their own name for it.
foreign() {
    local architecture=$1 of_debian=${1/aarch64/arm64} triple=$1-unknown-linux-gnu variable runner
    shift
    variable=CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$triple")
    targets "$triple" || return 0
    command -v "qemu-$architecture" >/dev/null || debian qemu-user
    command -v "$architecture-linux-gnu-gcc" >/dev/null ||
        debian "gcc-$architecture-linux-gnu" "libc6-dev-$of_debian-cross"
    runner="qemu-$architecture -L /usr/$architecture-linux-gnu"
    env "${variable}_LINKER=$architecture-linux-gnu-gcc" "${variable}_RUNNER=$runner" STERNA_TEST_RUNNER="$runner" \
        cargo test --package sterna --target "$triple" "$@"
}

# windows FILTER...: tests of ops for Windows, by Wine, with a home of its own, in which lies the library of the system
# that Wine 8 of Debian lacks.
windows() {
    local triple=x86_64-pc-windows-gnu home=$caches/sterna-wine packages=()
    targets "$triple" || return 0
    command -v x86_64-w64-mingw32-gcc >/dev/null || packages+=(gcc-mingw-w64-x86-64)
    command -v wine >/dev/null || packages+=(wine wine64)
    debian "${packages[@]}"
    mkdir -p "$home/path"
    x86_64-w64-mingw32-gcc -shared -O2 -o "$home/path/bcryptprimitives.dll" .ci/bcryptprimitives.c -ladvapi32
    env CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=wine WINEDEBUG=-all WINEPREFIX="$home" WINEPATH="$home/path" \
        cargo test --package sterna --target "$triple" --test ops -- "$@"
}

# wasm FILTER...: tests of ops for WASI, by wasmtime, which has no threads; what reads results in one is left out.
wasm() {
    local triple=wasm32-wasip1
    targets "$triple" || return 0
    python_packages "$wasmtime" "wasmtime==$wasmtime_version"
    env CARGO_TARGET_WASM32_WASIP1_RUNNER="$wasmtime/bin/python $PWD/.ci/wasi.py" \
        cargo test --package sterna --no-default-features --target "$triple" --test ops -- "$@" \
        --skip large_results_can_be_read_at_once_by_another_thread
}

# Other targets compile, on aarch64 with the C interface and without a warning; what is tested there are steps of their own.
other_targets() {
    local triples=(
        x86_64-pc-windows-gnu wasm32-wasip1 s390x-unknown-linux-gnu riscv64gc-unknown-linux-gnu aarch64-apple-darwin
    )
    local linux=aarch64-unknown-linux-gnu
    targets "$linux" "${triples[@]}" || return 0
    RUSTFLAGS="-D warnings" cargo check --quiet --package sterna --package sterna-capi --lib --target "$linux"
    cargo check --package sterna --lib "${triples[@]/#/--target=}"
}

# emulated CPU FILTER...: tests of ops on another processor, by qemu.
emulated() {
    local cpu=$1
    shift
    env "CARGO_TARGET_$(tr 'a-z-' 'A-Z_' <<<"$host")_RUNNER=qemu-x86_64 -cpu $cpu" cargo test --test ops -- "$@"
}

# Installs the C interface by cargo-c and builds programs with it, through pkg-config and CMake, as the page on installing and the
# guide say. Cargo takes builds of cargo-c for outdated, so they have a folder of their own.
installation() {
    crate cargo-c "$cargo_c_version" "cargo cinstall"
    .ci/budgets.py --clean-build
    CARGO_TARGET_DIR=$target/cargo-c capi/tests/install.sh
    STERNA_TEST_GUIDE=1 cargo test --test guide commands_of_the_guide_run
}

# candle COMMAND OPTION...: a command of cargo on the example for candle, in the folder in which the peers have built candle
# and Sterna.
candle() {
    local command=$1
    shift
    cargo "$command" --locked --release --manifest-path examples/candle/Cargo.toml \
        --target-dir "$caches/sterna-peers/target" "$@"
}

# Every crate builds from what would be published of it. Cargo takes a package that it has unpacked and built before in the
# same folder for the one of now, so the folder starts empty.
packages() {
    rm -rf "$target/packages" "${CARGO_HOME:-$HOME/.cargo}"/registry/{cache,src}/-*/sterna*
    CARGO_TARGET_DIR=$target/packages \
        cargo package --workspace --exclude sterna-interleavings --exclude sterna-python \
        --exclude sterna-stack --quiet
}

# The oldest versions that Cargo.toml allows of what it names do build.
minimal_versions() {
    local folder
    folder=$(mktemp -d)
    git ls-files -z | xargs -0 cp --parents -t "$folder"
    (
        cd "$folder"
        cargo +nightly update --quiet -Zdirect-minimal-versions
        cargo check --quiet --workspace --all-features
    )
    rm -rf "$folder"
}

# Every public item of the library and of the reader of models has an example, or belongs to one that has.
examples_in_docs() {
    cargo +nightly rustdoc --quiet --package sterna --all-features -- -Zunstable-options --output-format json
    .ci/examples.py "$target/doc/sterna.json"
    cargo +nightly rustdoc --quiet --package sterna-import -- -Zunstable-options --output-format json
    .ci/examples.py "$target/doc/sterna_import.json"
}
