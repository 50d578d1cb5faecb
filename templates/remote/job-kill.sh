# Ends a job and everything it started. Arguments: job, seconds between TERM and KILL. TERM goes to the job's process
# group and to every process with its mark in the environment: the job's folder, since several hosts may share one machine
# and so one /proc. Exit status: 0 none is left; 1 some are.
#include claim.sh
dir=$ORCH_HOST_DIR/jobs/$1
mark=ORCH_JOB_DIR=$dir
group=
members() { # each process once: a second TERM would mean something else to a program
    all_members | tr ' ' '\n' | sort -un | tr '\n' ' '
}
all_members() {
    # shellcheck disable=SC2013 # names of /proc: no blanks
    for file in $(grep -lzxF -e "$mark" /proc/[0-9]*/environ 2>/dev/null); do
        file=${file#/proc/}
        printf '%s ' "${file%/environ}"
    done
    [ -n "$group" ] || return
    for file in /proc/[0-9]*/stat; do
        read -r stat 2>/dev/null <"$file" || continue
        # shellcheck disable=SC2086 # fields: state, parent, group
        set -- ${stat##*) }
        if [ "$3" = "$group" ] && [ "$1" != Z ]; then
            printf '%s ' "${stat%% *}"
        fi
    done
}
wait_gone() {
    tries=$1
    while [ -n "$(members)" ]; do
        [ "$tries" -gt 0 ] || return 1
        tries=$((tries - 1))
        sleep 0.1
    done
}
if [ -d "$dir" ]; then
    # A job that was claimed and never launched must not be launched later.
    if [ ! -e "$dir/job" ] && [ ! -e "$dir/rc" ] && orch_take_claim "$dir/claim"; then
        [ -e "$dir/job" ] || [ -e "$dir/rc" ] || { echo 143 >"$dir/rc.new" && mv -f "$dir/rc.new" "$dir/rc"; }
        orch_give_claim
    fi
    # Only while the claim is held is the process group certainly still the job's.
    if [ -e "$dir/job" ] && orch_is_held "$dir/claim"; then
        group=$(sed -n 's/^group=//p' "$dir/job")
    fi
fi
left=$(members)
if [ -n "$left" ]; then
    # shellcheck disable=SC2086 # a list of numbers
    kill -TERM $left 2>/dev/null
    if ! wait_gone "$(printf '%.0f' "${2}e1")"; then
        # shellcheck disable=SC2046 # a list of numbers
        kill -KILL $(members) 2>/dev/null
        if ! wait_gone 50; then
            echo "still running: $(members)"
            exit 1
        fi
    fi
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
