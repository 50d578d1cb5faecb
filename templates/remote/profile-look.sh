# Prints the progress of a profile. Arguments: job, id. First line: "orch-profile RANKS DONE FAILED STATE"; then the answers that failed.
# Each process of the bundled trainer keeps a heartbeat file, so these files give their number.
dir=$ORCH_HOST_DIR/jobs/$1
place=$dir/profiles/$2
count() {
    n=0
    for file; do
        [ ! -e "$file" ] || n=$((n + 1))
    done
    echo "$n"
}
state=running
[ ! -e "$dir/rc" ] || state=ended
printf 'orch-profile %s %s %s %s\n' "$(count "$dir"/heartbeat "$dir"/heartbeat.[0-9]*)" \
    "$(count "$place"/done-*.json)" "$(count "$place"/failed-*.json)" "$state"
cat "$place"/failed-*.json 2>/dev/null || true
