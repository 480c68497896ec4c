#!/bin/sh
# Installs packages with apt-get, as root, and starts no service of theirs: install-packages.sh PACKAGE…
#
# Several may run at once: one installs, the others wait for it and then find everything there.
set -eu

# Tests put theirs elsewhere.
policy=${MILLRACE_POLICY_FILE:-/usr/sbin/policy-rc.d}
lock=${MILLRACE_SETUP_LOCK:-/run/millrace-setup.lock}
mark='# Placed by the set-up of millrace for the time of an installation.'
export DEBIAN_FRONTEND=noninteractive

install() {
  # Somebody else's apt-get may be at work.
  apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

exec 9>"$lock"
flock 9

# Debian asks this file before it starts a service; 101 forbids it. One that an interrupted set-up has left is ours.
if [ ! -e "$policy" ] || grep -qF "$mark" "$policy"; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 130' HUP INT TERM
  printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
  chmod 755 "$policy"
fi

# The lists of a fresh machine are empty, and those of an old one name files that are gone. What apt starts must not
# inherit the lock. A list that cannot be had may be one that is not needed.
apt-cache show "$@" >/dev/null 2>&1 || apt-get update -qq 9>&- || true
install "$@" 9>&- || {
  apt-get update -qq 9>&- || true
  install "$@" 9>&-
}
