# Prints the load of this host: "orch-sample KIND ..." lines, sizes in KiB. chip-sample.sh has its chips.
echo "orch-sample load $(cut -d ' ' -f 1 /proc/loadavg) $(nproc)"
awk '/^MemTotal:/ { total = $2 } /^MemAvailable:/ { free = $2 } END { print "orch-sample memory", total - free, total }' /proc/meminfo
df -Pk "$HOME" | awk 'END { print "orch-sample disk", $3, $2 }'
