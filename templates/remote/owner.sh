# Compares what a command presents with the folder of this rank. Arguments: version; epoch, installation, who that is. Without
# an epoch (own machines) only the version counts.
# A folder of another version refuses, and so does one with jobs or an owner that has no version. A new folder gets this one.
# A host without an owner, or with a lower epoch, gets this one. A higher epoch, or the same one of another installation,
# refuses: then the command is not run. Where nothing can be written, no one can have taken the host over.
. ./claim.sh
file=$ORCH_HOST_DIR/owner
format=$ORCH_HOST_DIR/format
umask 077
compare_version() {
    version='' rest=''
    [ ! -s "$format" ] || read -r version rest <"$format"
    case $version in
    '')
        set -- "$1" "$ORCH_HOST_DIR"/jobs/*
        { [ -f "$file" ] && [ -s "$file" ]; } || [ -e "$2" ] || return 0
        version=0
        ;;
    *[!0-9]* | ??????????*) version=0 ;; # ten digits: no version of ours
    esac
    [ "$version" != "$1" ] || return 0
    echo "orch-other-version $version"
    return 79
}
compare_version "$1" || exit
{ mkdir -p "$ORCH_HOST_DIR" && true >>"$format"; } 2>/dev/null || exit 0
# shellcheck disable=SC2034 # orch_give_claim reads it
orch_await_claim "$file-claim" 100 || orch_claim=/dev/null
compare_owner() {
    [ -n "$1" ] && { true >>"$file"; } 2>/dev/null || return 0
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
compare() {
    compare_version "$1" || return
    [ -s "$format" ] || { echo "$1" >"$format.new" && mv -f "$format.new" "$format"; } 2>/dev/null || :
    compare_owner "$2" "$3" "$4"
}
compare "$@"
status=$?
orch_give_claim
exit "$status"
