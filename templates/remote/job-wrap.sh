# Runs one job and records how it ended. Arguments: job, its folder. Its claim is the proof that the job runs: it names this
# process. The job has its own session. Exit status 1: the claim could not be made, so nothing was started.
. ./claim.sh
cd "$2" || exit 1
mask=$(umask)
umask 077
read -r up rest </proc/uptime
until=$((${up%.*} + 8)) # seconds; job-start.sh waits longer
until orch_take_claim "$2/claim"; do
    [ -e job ] && exit 0
    read -r up rest </proc/uptime
    [ "${up%.*}" -lt "$until" ] || exit 1
    sleep 0.02
done
if [ -e job ] || [ -e rc ]; then
    exit 0
fi
read -r up rest </proc/uptime # it counts on whatever the host's clock is set to
began=${up%.*}${up#*.}        # hundredths of a second
echo '    ' >rc.new # space reserved for the status, so that a full disk does not hide how the job ended
(
    umask "$mask"
    export ORCH_JOB="$1" ORCH_JOB_DIR="$2" ORCH_HEARTBEAT_FILE="$2/heartbeat"
    # shellcheck disable=SC2016 # the inner shell's own arguments
    exec setsid /bin/sh -c '. "$1/env"; rm -f "$1/env"; cd "$HOME" && exec "$1/run.sh"' orch "$2"
) </dev/null >>log 2>&1 &
child=$!
{
    echo "wrapper=$$"
    echo "group=$child"
    echo "began=$began"
} >job.new
mv -f job.new job
# Records the size of the log over time, so that logs can be read by time. It ends together with this wrapper.
(
    noted=
    while
        timeout 5 tail -s 0.5 -f --pid="$$" /dev/null
        [ "$?" = 124 ] # the time is over, and the job runs
    do
        size=$(wc -c <log)
        [ "$size" = "$noted" ] || echo "$(date +%s) $size" >>log-times
        noted=$size
    done
) </dev/null >/dev/null 2>&1 &
wait "$child"
status=$?
echo "$(date +%s) $(wc -c <log)" 2>/dev/null >>log-times
read -r up rest </proc/uptime
echo "$((${up%.*}${up#*.} - began))" 2>/dev/null >ran
printf '%s' "$status" 1<>rc.new
mv -f rc.new rc
