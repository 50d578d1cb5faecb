# Compares who sends a command with the owner of this host. Arguments: epoch, installation, who that is.
# A host without an owner, or with a lower epoch, gets this one. A higher epoch, or the same one of another installation,
# refuses: then the command is not run. Where nothing can be written, no one can have taken the host over.
. ./claim.sh
file=$ORCH_HOST_DIR/owner
umask 077
{ mkdir -p "$ORCH_HOST_DIR" && true >>"$file"; } 2>/dev/null || exit 0
# shellcheck disable=SC2034 # orch_give_claim reads it
orch_await_claim "$file-claim" 100 || orch_claim=/dev/null
compare() {
    epoch='' installation='' rest=''
    [ ! -s "$file" ] || read -r epoch installation rest <"$file"
    case $epoch in *[!0-9]* | ??????????*) epoch='' ;; esac # ten digits: no epoch of ours
    if [ "$1 $2" = "$epoch $installation" ]; then
        return 0
    fi
    if [ -n "$epoch" ] && [ "$1" -le "$epoch" ]; then
        echo "orch-taken-over $epoch $installation $rest"
        return 79
    fi
    if echo "$1 $2 $3 $(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$file.new" && mv -f "$file.new" "$file"; then
        return 0
    fi
    [ -z "$epoch" ]
}
compare "$@"
status=$?
orch_give_claim
exit "$status"
