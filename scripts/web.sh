#!/usr/bin/env bash
# Install Chromium where it is missing and this is root on Debian; else say how. A second run does nothing.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do command -v "$name" >/dev/null && exit 0; done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "web: installing chromium"
    apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null
else
    echo "web: missing chromium" >&2
    echo "  mend: apt-get install chromium" >&2
    exit 2
fi
