#!/usr/bin/env bash
# Builds and installs Sterna by the commands of docs/install.md, in a home of its own, moves what was installed, and builds
# programs with it from outside the tree: in C through pkg-config, shared and static, and in C and C++ through CMake. Needs
# cargo-c, pkg-config and CMake.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

version=$(cargo metadata --no-deps --format-version 1 |
    sed -E 's/.*"name":"sterna-capi","version":"([^"]*)".*/\1/')

# expect WHAT COMMAND...: the command prints the version that was installed, and nothing else.
expect() {
    local what=$1 said
    shift
    said=$("$@")
    if [ "$said" != "$version" ]; then
        echo "$what: printed '$said', not '$version'" >&2
        return 1
    fi
    echo "$what: $said"
}

# pasted WORD: runs the block of docs/install.md whose first line has the word, in the root of the clone, as a user who has
# just pasted it; its program prints what the one of the first page of C prints.
pasted() {
    local block said
    block=$(awk -v word="$1" '
        /^```/ { inside = ($0 == "```sh"); if (found) exit; first = 1; next }
        inside && first { found = index($0, word); first = 0 }
        inside && found' ../docs/install.md)
    said=$(cd .. && HOME=$place bash -euo pipefail -c "$block" | tail -n 2)
    if [ "$said" != $'1 -1 3\n4 -1 6' ]; then
        printf 'the block of docs/install.md with %s printed:\n%s\n' "$1" "$said" >&2
        return 1
    fi
    echo "docs/install.md, $1: as printed"
}

# The home is another one, cargo is not.
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
# The block names the folder in which cargo builds unless told otherwise.
(unset CARGO_TARGET_DIR && pasted "cargo build --release -p sterna-capi")
pasted "cargo cinstall"

for file in include/sterna.h include/sterna.hpp lib/libsterna.so lib/libsterna.a lib/pkgconfig/sterna.pc \
    share/sterna/cmake/SternaConfig.cmake share/sterna/cmake/SternaConfigVersion.cmake; do
    if [ ! -e "$place/.local/$file" ]; then
        echo "$file was not installed" >&2
        exit 1
    fi
done
# Before 1.0 the minor version is part of the name by which programs ask for the library.
soname=$(readelf -d "$place/.local/lib/libsterna.so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')
if [ "$soname" != "libsterna.so.${version%.*}" ]; then
    echo "soname: $soname" >&2
    exit 1
fi

cp -r tests/install "$place/outside"
cd "$place/outside"

echo "--- pkg-config"
export PKG_CONFIG_PATH=$place/.local/lib/pkgconfig
# The words of pkg-config are words of the command.
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror outside.c $(pkg-config --cflags --libs sterna) -o shared
expect "pkg-config, shared" env LD_LIBRARY_PATH="$place/.local/lib" ./shared
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror outside.c $(pkg-config --cflags sterna) "$place/.local/lib/libsterna.a" \
    $(pkg-config --static --libs-only-l sterna | sed 's/-lsterna//') -o static
expect "pkg-config, static" ./static
expect "pkg-config, version" pkg-config --modversion sterna

echo "--- CMake, from where the installation was moved to"
mv "$place/.local" "$place/moved"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$place/moved" -DSTERNA_VERSION="$version" -DCMAKE_BUILD_TYPE=Release \
    >"$place/cmake.log" 2>&1 || { cat "$place/cmake.log" >&2; exit 1; }
cmake --build build >"$place/cmake.log" 2>&1 || { cat "$place/cmake.log" >&2; exit 1; }
for program in shared static plus; do
    expect "CMake, $program" "build/$program"
done
