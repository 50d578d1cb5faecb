# Streams a job's log from a byte offset until the job has ended. Arguments: job, offset.
# The waiter runs while the job's lock is held; tail ends, after a last read, when the waiter has ended.
dir=$HOME/.orch/jobs/$1
[ -e "$dir/log" ] || exit 0
flock -s "$dir/alive" true </dev/null >/dev/null 2>&1 &
waiter=$!
tail -s 0.2 -c "+$(($2 + 1))" -f --pid="$waiter" "$dir/log" 2>/dev/null
status=$?
kill "$waiter" 2>/dev/null
exit "$status"
