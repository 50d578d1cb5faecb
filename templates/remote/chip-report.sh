# Prints the newest sample of this host's chips: "orch-chips-age SECONDS", then "orch-chips LINE" for each of its lines.
# Arguments: the source of chip-sample.sh, and the age in seconds from which the next sample is taken. That happens beside this
# script, which waits for no tool: one may hang, and who asks for the progress of a job must not wait for it.
exec 2>/dev/null
[ -d "$HOME/.orch" ] || exit 0
chips=$HOME/.orch/chips most=262144 age='' size=0
if [ -f "$chips" ]; then
    read -r changed size <<END
$(stat -L -c '%Y %s' -- "$chips")
END
    age=$(($(date +%s) - changed))
fi
if [ -z "$age" ] || [ "$age" -lt 0 ] || [ "$age" -ge "$2" ]; then
    # The lock is kept by a tool that cannot be ended, so that there is never a second one.
    # shellcheck disable=SC2016  # the inner shell expands them
    setsid nice -n 19 timeout -k 2 60 /bin/sh -c '
        exec 9>"$2.lock"
        flock -n 9 || exit 0
        /bin/sh -c "$1" orch | head -c "$3" >"$2.new" && mv -f -- "$2.new" "$2"
    ' orch "$1" "$chips" "$most" </dev/null >/dev/null 2>&1 &
fi
[ -n "$age" ] && [ "$age" -ge 0 ] || exit 0
echo "orch-chips-age $age"
# What fills the file is no report of a tool. Every line has the prefix, so that none can be read as anything else.
[ "$size" -ge "$most" ] || head -c "$most" "$chips" | LC_ALL=C sed 's/^/orch-chips /'
