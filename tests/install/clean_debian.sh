#!/usr/bin/env bash
# clean_debian.sh PACKAGES: in a Debian 12 that has nothing else, the packages that `./dev package` made in this folder are
# installed, and every sample is built and run against them alone. Needs mmdebstrap, root, and the archive of Debian.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
packages=$(realpath "${1:?usage: clean_debian.sh PACKAGES}")
command -v mmdebstrap >/dev/null || { echo "clean_debian.sh: mmdebstrap is missing: apt install mmdebstrap" >&2; exit 2; }
mmdebstrap --quiet --variant=apt --format=null --include=gcc,libc6-dev,pkg-config,fortunes,man-db \
  --customize-hook="copy-in '$packages' '$here/in_clean_debian.sh' '$here/../service/smoke.py' /root" \
  --customize-hook='chroot "$1" bash /root/in_clean_debian.sh "/root/'"$(basename "$packages")"'"' bookworm -
