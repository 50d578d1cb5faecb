# Runs one job and records how it ended. Arguments: job, its folder. Holds the lock `alive` while it runs;
# the job has its own session and does not inherit the lock. A status probe may hold the lock for a moment.
cd "$2" || exit 1
mask=$(umask)
umask 077
exec 9>>alive || exit 1
until flock -n 9; do
    [ -e job ] && exit 0
    sleep 0.02
done
if [ -e job ] || [ -e rc ]; then
    exit 0
fi
echo '    ' >rc.new # space reserved for the status, so that a full disk does not hide how the job ended
(
    exec 9>&-
    umask "$mask"
    export ORCH_JOB="$1" ORCH_JOB_DIR="$2" ORCH_HEARTBEAT_FILE="$2/heartbeat"
    # shellcheck disable=SC2016 # the inner shell's own arguments
    exec setsid /bin/sh -c '. "$1/env"; rm -f "$1/env"; cd "$HOME" && exec "$1/run.sh"' orch "$2"
) </dev/null >>log 2>&1 &
child=$!
{
    echo "wrapper=$$"
    echo "group=$child"
    echo "boot=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
} >job.new
mv -f job.new job
# Records the size of the log over time, so that logs can be read by time. The lock ends it together with this wrapper.
(
    exec 9>&- 8<alive
    noted=
    while
        flock -s -w 5 -E 75 8
        [ "$?" = 75 ] # the time is over, and the job runs
    do
        size=$(wc -c <log)
        [ "$size" = "$noted" ] || echo "$(date +%s) $size" >>log-times
        noted=$size
    done
) </dev/null >/dev/null 2>&1 &
wait "$child"
status=$?
echo "$(date +%s) $(wc -c <log)" 2>/dev/null >>log-times
printf '%s' "$status" 1<>rc.new
mv -f rc.new rc
