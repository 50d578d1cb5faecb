# Requests a profile from the bundled trainer of a running job. Arguments: job, id, steps, the second since the epoch before
# which none begins, and the only rank that records, if it is one. The request is written by rename.
dir=$ORCH_HOST_DIR/jobs/$1
fail() {
    echo "$1"
    exit 1
}
[ -d "$dir" ] || fail "there is no job $1 here"
[ ! -e "$dir/rc" ] || fail "the program has ended here"
[ -f "$ORCH_HOST_DIR/trainer/trainer/profiling.py" ] || fail "this trainer is too old to record a profile: launch it again"
umask 077
printf '{"id": "%s", "steps": %s, "at": %s%s}\n' "$2" "$3" "$4" "${5:+, \"ranks\": [$5]}" >"$dir/.profile-$2" || fail "cannot write in $dir"
mv -f "$dir/.profile-$2" "$dir/profile-request.json" || fail "cannot write in $dir"
