# Prints the byte at which to begin reading a job's log. Arguments: job, number of last lines or "", age in seconds or "".
# A log of which no times were noted is read from its beginning.
dir=$ORCH_HOST_DIR/jobs/$1
[ -e "$dir/log" ] || exit 3
start=0
if [ -n "$2" ]; then
    start=$(($(wc -c <"$dir/log") - $(tail -n "$2" "$dir/log" | wc -c)))
fi
if [ -n "$3" ] && [ -e "$dir/log-times" ]; then
    since=$(awk -v "until=$(($(date +%s) - $3))" '$1 <= until { size = $2 } END { print size + 0 }' "$dir/log-times")
    [ "$since" -le "$start" ] || start=$since
fi
echo "start $start"
