# Ends a job and everything it started. Arguments: job, seconds between TERM and KILL, why (a word). TERM goes to the job's
# process group and session and to every process with its mark in the environment: the job's folder, since several hosts may
# share one machine and so one /proc. Before a signal is sent, the first reason is kept in `ended-by`. Exit status: 0 none is
# left; 1 some are.
. ./claim.sh
. ./end-processes.sh
dir=$ORCH_HOST_DIR/jobs/$1
why=$3
mark=ORCH_JOB_DIR=$dir
keep_reason() { # created once: the first reason stays; one that ended before keeps its own result
    [ -e "$dir/rc" ] || (set -C && printf '%s\n' "$why" >"$dir/ended-by") 2>/dev/null
}
if [ -d "$dir" ]; then
    # A job that was claimed and never launched must not be launched later.
    if [ ! -e "$dir/job" ] && [ ! -e "$dir/rc" ] && orch_take_claim "$dir/claim"; then
        [ -e "$dir/job" ] || [ -e "$dir/rc" ] || { keep_reason; echo 143 >"$dir/rc.new" && mv -f "$dir/rc.new" "$dir/rc"; }
        orch_give_claim
    fi
    # Only while the claim is held is the process group certainly still the job's.
    if [ -e "$dir/job" ] && orch_is_held "$dir/claim"; then
        group=$(sed -n 's/^group=//p' "$dir/job")
    fi
fi
[ -z "$(members)" ] || keep_reason
if ! end_members "$2"; then
    echo "still running: $left"
    exit 1
fi
tries=50
while [ -n "$group" ] && [ "$tries" -gt 0 ] && orch_is_held "$dir/claim"; do
    tries=$((tries - 1))
    sleep 0.1
done
if [ "$tries" = 0 ]; then
    echo "no process of the job is left, but its wrapper does not end"
    exit 1
fi
exit 0
