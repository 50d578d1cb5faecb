# Prints the state of this host's chips: "orch-sample KIND ..." lines, as its tools write them. Tools that are not here are left out.
# Each tool is given a few seconds, since one that hangs is a finding, too.
PATH=$PATH:$HOME/.local/bin:$HOME/.orch/venv/bin:/opt/aws/neuron/bin
gpus() { # prints the fields $1 of every GPU
    timeout -k 2 10 nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null
}
if command -v nvidia-smi >/dev/null; then
    basic=index,utilization.gpu,memory.used,memory.total,temperature.gpu
    # A driver that does not know a field refuses all of them: 'Field "..." is not a valid field to query.'
    { gpus "$basic,power.draw,ecc.errors.uncorrected.volatile.total" || [ $? -ge 124 ] || gpus "$basic"; } |
        sed 's/^/orch-sample nvidia /'
    timeout -k 2 10 nvidia-smi -q -d TEMPERATURE 2>/dev/null | sed -n '/^GPU \|Temp  *:/s/^/orch-sample limits /p'
fi
if command -v tpu-info >/dev/null; then
    timeout -k 2 10 tpu-info 2>/dev/null | sed 's/^/orch-sample tpu /'
fi
if command -v neuron-monitor >/dev/null; then
    timeout -k 2 10 neuron-monitor 2>/dev/null | head -n 1 | sed 's/^/orch-sample neuron /'
fi
