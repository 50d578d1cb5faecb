# Runs one job and writes down how it ended. Arguments: job, its folder. Holds the lock `alive` as long as it lives;
# the job is a session of its own and does not inherit the lock. A status probe may hold the lock for a moment.
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
echo '    ' >rc.new # room for the status while there is room: a full disk must not hide how the job ended
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
wait "$child"
printf '%s' "$?" 1<>rc.new
mv -f rc.new rc
