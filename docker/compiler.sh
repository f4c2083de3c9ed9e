#!/bin/sh
# Installs what a compiled Barnabas is built with, where the image lacks it: a C compiler, and the headers of its python3.
set -eu
headers=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
packages=
command -v gcc >/dev/null || packages="gcc libc6-dev"
test -f "$headers/Python.h" || packages="$packages python3-dev"
if [ -n "$packages" ]; then
    apt-get update
    # shellcheck disable=SC2086  # several packages
    apt-get install --yes --no-install-recommends $packages
    rm -rf /var/lib/apt/lists/*
fi
