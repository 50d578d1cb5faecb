# Starts a detached job once. Arguments: job, bytes of its script, bytes of its environment file, the wrapper's source;
# script and environment come on standard input in this order. The folder jobs/JOB of this rank appears complete, by rename. A
# second start finds it and does nothing, unless the first died before it had launched the job.
job=$1
jobs=$ORCH_HOST_DIR/jobs
dir=$jobs/$job
mask=$(umask)
umask 077
fail() {
    echo "$1"
    exit 1
}
mkdir -p "$jobs" || fail "cannot make $jobs"
chmod go-rwx "$HOME/.orch" 2>/dev/null # whoever made it
if [ ! -d "$dir" ]; then
    new=$jobs/.new-$job-$$
    mkdir "$new" || fail "cannot make $new"
    trap 'rm -rf "$new"' EXIT
    { head -c "$2" >"$new/run.sh" && head -c "$3" >"$new/env"; } || fail "cannot write the job's files"
    [ "$(wc -c <"$new/run.sh")" -eq "$2" ] || fail "the job's script came incomplete"
    [ "$(wc -c <"$new/env")" -eq "$3" ] || fail "the job's environment came incomplete"
    { chmod 700 "$new/run.sh" && true >"$new/log"; } || fail "cannot write the job's files"
    mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir" ] || fail "cannot make $dir"
fi
if [ -e "$dir/job" ] || [ -e "$dir/rc" ]; then
    exit 0
fi
unset ORCH_CALL ORCH_HOST_NAME SSH_CLIENT SSH_CONNECTION SSH_TTY
umask "$mask"
setsid /bin/sh -c "$4" orch "$job" "$dir" </dev/null >/dev/null 2>&1 &
wrapper=$!
tries=500
while [ ! -e "$dir/job" ] && [ ! -e "$dir/rc" ]; do
    [ "$tries" -gt 0 ] || fail "the job did not start within 10 s"
    if ! kill -0 "$wrapper" 2>/dev/null && [ ! -e "$dir/job" ] && [ ! -e "$dir/rc" ]; then
        why=$( (mkdir -p "$dir/claim" && true >"$dir/claim/.try" && rm -f "$dir/claim/.try") 2>&1) || fail "the job cannot be claimed: $why"
        fail "the job cannot be claimed: another process holds $dir/claim"
    fi
    tries=$((tries - 1))
    sleep 0.02
done
exit 0
