# Prints the newest sample of this host's chips: "orch-chips-age SECONDS", then "orch-chips LINE" for each of its lines.
# Arguments: the source of chip-sample.sh, the age in seconds from which the next sample is taken, the source of chip-keep.sh.
# That happens beside this script, which waits for no tool: one may hang, and the progress of a job must not wait for it.
exec 2>/dev/null
[ -d "$ORCH_HOST_DIR" ] || exit 0
chips=$ORCH_HOST_DIR/chips most=262144 age='' size=0
if [ -f "$chips" ]; then
    read -r changed size <<END
$(stat -L -c '%Y %s' -- "$chips")
END
    age=$(($(date +%s) - changed))
fi
if [ -z "$age" ] || [ "$age" -lt 0 ] || [ "$age" -ge "$2" ]; then
    setsid nice -n 19 timeout -k 2 60 setsid /bin/sh -c "$3" orch "$1" "$chips" "$most" </dev/null >/dev/null 2>&1 &
fi
[ -n "$age" ] && [ "$age" -ge 0 ] || exit 0
echo "orch-chips-age $age"
# What fills the file is no report of a tool. Every line has the prefix, so that none can be read as anything else.
[ "$size" -ge "$most" ] || head -c "$most" "$chips" | LC_ALL=C sed 's/^/orch-chips /'
