# Ends every process that carries a mark in its environment. Arguments: NAME=VALUE, seconds between TERM and KILL.
# Exit status: 0 none is left, 1 some are (their process ids are printed).
marked() {
    found=
    # shellcheck disable=SC2013 # names of /proc: no blanks
    for file in $(grep -lzxF -e "$1" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${file#/proc/}
        found="$found ${pid%/environ}"
    done
    echo "$found"
}
wait_gone() {
    tries=$2
    while [ "$tries" -gt 0 ]; do
        left=$(marked "$1")
        [ -z "$left" ] && return 0
        sleep 0.1
        tries=$((tries - 1))
    done
    return 1
}
tenths=$(printf '%.0f' "${2}e1")
left=$(marked "$1")
[ -z "$left" ] && exit 0
# shellcheck disable=SC2086 # a list of numbers
kill -TERM $left 2>/dev/null
wait_gone "$1" "$tenths" && exit 0
# shellcheck disable=SC2046 # a list of numbers
kill -KILL $(marked "$1") 2>/dev/null
wait_gone "$1" 50 && exit 0
echo "still running:$(marked "$1")"
exit 1
