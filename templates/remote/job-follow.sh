# Streams a job's log from a byte offset until the job has ended. Arguments: job, offset.
# tail ends, after a last read, when the process of the job's claim has ended.
. ./claim.sh
dir=$ORCH_HOST_DIR/jobs/$1
[ -e "$dir/log" ] || exit 0
if orch_is_held "$dir/claim"; then
    # shellcheck disable=SC2154,SC2086 # set by orch_is_held: four words
    set -- "$2" $orch_words
    exec tail -s 0.2 -c "+$(($1 + 1))" -f --pid="$4" "$dir/log" 2>/dev/null
fi
exec tail -c "+$(($2 + 1))" "$dir/log" 2>/dev/null
