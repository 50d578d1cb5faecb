# Tells the state of jobs. Arguments: jobs. One line for each: "orch-job JOB PHASE RC BYTES LAST-LINE".
# The state is a function of the folder: rc, then the lock, then rc again, for the job may end between two looks.
for job; do
    dir=$HOME/.orch/jobs/$job
    rc=-
    bytes=0
    last=
    if [ ! -d "$dir" ]; then
        phase=absent
    elif [ -e "$dir/rc" ]; then
        phase=finished
    elif ! flock -n -s "$dir/alive" true; then
        phase=running
    elif [ -e "$dir/rc" ]; then
        phase=finished
    elif [ -e "$dir/job" ]; then
        phase=lost
    else
        phase=absent
    fi
    [ "$phase" = finished ] && rc=$(tr -d ' ' <"$dir/rc")
    if [ -e "$dir/log" ]; then
        bytes=$(wc -c <"$dir/log")
        last=$(tail -c 1000 "$dir/log" | tr '\r\000-\011' '\n' | grep -a '[^[:space:]]' | tail -n 1)
    fi
    printf 'orch-job %s %s %s %s %s\n' "$job" "$phase" "$rc" "$bytes" "$last"
done
