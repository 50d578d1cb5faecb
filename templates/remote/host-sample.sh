# Prints the state of this host and its chips: "orch-sample KIND ..." lines, sizes in KiB. Tools that are not here are left out.
# Each tool is given a few seconds, since one that hangs is a finding, too.
PATH=$PATH:$HOME/.local/bin:$HOME/.orch/venv/bin:/opt/aws/neuron/bin
echo "orch-sample load $(cut -d ' ' -f 1 /proc/loadavg) $(nproc)"
awk '/^MemTotal:/ { total = $2 } /^MemAvailable:/ { free = $2 } END { print "orch-sample memory", total - free, total }' /proc/meminfo
df -Pk "$HOME" | awk 'END { print "orch-sample disk", $3, $2 }'
if command -v nvidia-smi >/dev/null; then
    timeout 10 nvidia-smi --query-gpu=index,utilization.gpu,memory.used,memory.total,temperature.gpu \
        --format=csv,noheader,nounits 2>/dev/null | sed 's/^/orch-sample nvidia /'
fi
if command -v tpu-info >/dev/null; then
    timeout 10 tpu-info 2>/dev/null | sed 's/^/orch-sample tpu /'
fi
if command -v neuron-monitor >/dev/null; then
    timeout 10 neuron-monitor 2>/dev/null | head -n 1 | sed 's/^/orch-sample neuron /'
fi
