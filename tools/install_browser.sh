#!/usr/bin/env bash
# Chromium, its driver and a Chinese font for `make test-docs`. Does nothing where the browser is there already.
set -euo pipefail
command -v chromium > /dev/null && command -v chromedriver > /dev/null && exit 0

wanted=(chromium chromium-driver fonts-noto-cjk)
refuse() {
  echo "$1 Install chromium and chromedriver, of one version and on the PATH, and a font with Chinese characters" \
    "(Debian: ${wanted[*]})." >&2
  exit 1
}
command -v apt-get > /dev/null || refuse "No Chromium here, and no apt-get to install it with."
if [ "$(id -u)" -eq 0 ]; then
  as_root=()
elif command -v sudo > /dev/null; then
  as_root=(sudo -n)
else
  refuse "No Chromium here, and no right to install it."
fi
"${as_root[@]}" apt-get update -q || echo "apt-get update failed; trying with the lists that are there." >&2
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${wanted[@]}" ||
  refuse "apt-get could not install Chromium."
command -v chromium > /dev/null && command -v chromedriver > /dev/null || refuse "The packages brought no Chromium."
