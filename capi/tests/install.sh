#!/usr/bin/env bash
# Installs Sterna into a prefix of its own, moves it, and builds programs with it from outside the tree: in C through
# pkg-config, shared and static, and in C and C++ through CMake. Needs cargo-c, pkg-config and CMake.
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

cargo cinstall --locked --release --package sterna-capi --prefix "$place/first" --libdir "$place/first/lib"

for file in include/sterna.h include/sterna.hpp lib/libsterna.so lib/libsterna.a lib/pkgconfig/sterna.pc \
    share/sterna/cmake/SternaConfig.cmake share/sterna/cmake/SternaConfigVersion.cmake; do
    if [ ! -e "$place/first/$file" ]; then
        echo "$file was not installed" >&2
        exit 1
    fi
done
# Before 1.0 the minor version is part of the name by which programs ask for the library.
soname=$(readelf -d "$place/first/lib/libsterna.so" | sed -nE 's/.*SONAME.*\[(.*)\]/\1/p')
if [ "$soname" != "libsterna.so.${version%.*}" ]; then
    echo "soname: $soname" >&2
    exit 1
fi

cp -r tests/install "$place/outside"
cd "$place/outside"

echo "--- pkg-config"
export PKG_CONFIG_PATH=$place/first/lib/pkgconfig
# The words of pkg-config are words of the command.
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror outside.c $(pkg-config --cflags --libs sterna) -o shared
expect "pkg-config, shared" env LD_LIBRARY_PATH="$place/first/lib" ./shared
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror outside.c $(pkg-config --cflags sterna) "$place/first/lib/libsterna.a" \
    $(pkg-config --static --libs-only-l sterna | sed 's/-lsterna//') -o static
expect "pkg-config, static" ./static
expect "pkg-config, version" pkg-config --modversion sterna

echo "--- CMake, from where the installation was moved to"
mv "$place/first" "$place/second"
cmake -S . -B build -DCMAKE_PREFIX_PATH="$place/second" -DSTERNA_VERSION="$version" -DCMAKE_BUILD_TYPE=Release \
    >"$place/cmake.log" 2>&1 || { cat "$place/cmake.log" >&2; exit 1; }
cmake --build build >"$place/cmake.log" 2>&1 || { cat "$place/cmake.log" >&2; exit 1; }
for program in shared static plus; do
    expect "CMake, $program" "build/$program"
done
