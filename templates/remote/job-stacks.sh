# Prints the stacks of every process of a job. Arguments: job, seconds for all, bytes for all. Changes nothing.
# For a Python process: py-spy, where installed; else its own dump, where it has offered one (a file
# stacks-RANK.pid with its process id; it writes to stacks-RANK.txt on SIGQUIT, and without the interpreter's
# lock on the signal whose number follows the id); else the contents of /proc.
dir=$ORCH_HOST_DIR/jobs/$1
seconds=$2
bytes=$3
mark=ORCH_JOB_DIR=$dir
uptime() {
    read -r up rest </proc/uptime
    echo "${up%.*}"
}
members() { # those that offered a dump first, then Python, then the rest
    # shellcheck disable=SC2013 # names of /proc: no blanks
    for file in $(grep -lzxF -e "$mark" /proc/[0-9]*/environ 2>/dev/null); do
        file=${file#/proc/}
        pid=${file%/environ}
        if [ -n "$(offer "$pid")" ]; then
            echo "1 $pid"
        elif is_python "$pid"; then
            echo "2 $pid"
        else
            echo "3 $pid"
        fi
    done | sort -n -k 1,1 -k 2,2
}
is_python() {
    grep -qsi -m 1 'python' "/proc/$1/maps"
}
offer() { # the file without its ending, if this process offered a dump and still has a handler for SIGQUIT, number 3
    for file in "$dir"/stacks-*.pid; do
        number=
        [ ! -f "$file" ] || read -r number rest <"$file" || true
        [ "$number" = "$1" ] || continue
        # Without a handler the signal would end the process. Caught signals are bits of a number in base 16.
        caught=$(sed -n 's/^SigCgt:.*\(.\)$/\1/p' "/proc/$1/status" 2>/dev/null)
        case $caught in [4567cdef]) echo "${file%.pid}" ;; esac
        return
    done
}
title() {
    words=$(tr '\0\n' '  ' <"/proc/$1/cmdline" 2>/dev/null | cut -d ' ' -f 1-3 | cut -c 1-200)
    state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
    [ -n "$state" ] || return
    printf '\n== process %s: %s\n   state %s, waits in %s\n' "$1" "$words" "$state" "$(wchan "/proc/$1")"
}
wchan() {
    where=$(cat "$1/wchan" 2>/dev/null)
    case $where in '' | 0) echo '-' ;; *) echo "$where" ;; esac
}
spies() { # every py-spy that may be the right one: beside the program's interpreter, in our environment, on PATH
    first=$(tr '\0' '\n' 2>/dev/null <"/proc/$1/cmdline" | head -n 1)
    case $first in /*) echo "${first%/*}/py-spy" ;; esac
    echo "$HOME/.orch/venv/bin/py-spy"
    command -v py-spy
}
by_spy() {
    spies "$1" | sort -u | while read -r spy; do
        [ -x "$spy" ] || continue
        for root in '' 'sudo -n'; do
            # shellcheck disable=SC2086 # nothing or two arguments
            if said=$($root timeout -k 1 10 "$spy" dump --pid "$1" 2>/dev/null </dev/null); then
                printf '%s\n' "$said"
                exit 0
            fi
        done
    done | grep .
}
by_itself() {
    place=$(offer "$1")
    [ -n "$place" ] || return 1
    read -r number without_lock <"$place.pid" || true
    before=$(wc -c <"$place.txt" 2>/dev/null) || before=0
    grows_after "$1" QUIT || { [ -n "$without_lock" ] && grows_after "$1" "$without_lock"; } || return 1
    tail -c "+$((before + 1))" "$place.txt"
}
grows_after() { # process, signal: asks, and waits until $place.txt is longer than $before and grows no more
    kill "-$2" "$1" 2>/dev/null || return 1
    tries=30
    size=$before
    while [ "$tries" -gt 0 ]; do
        sleep 0.1
        tries=$((tries - 1))
        last=$size
        size=$(wc -c <"$place.txt" 2>/dev/null) || size=$before
        [ "$size" -gt "$before" ] && [ "$size" -eq "$last" ] && return
    done
    [ "$size" -gt "$before" ]
}
by_kernel() { # threads by name, and where each waits; the kernel's own stack only where we may read it
    count=0
    for task in "/proc/$1/task"/*; do
        [ "$count" -lt 64 ] || break
        count=$((count + 1))
        printf '   thread %s %s: waits in %s\n' "${task##*/}" "$(cat "$task/comm" 2>/dev/null)" "$(wchan "$task")"
        head -n 12 "$task/stack" 2>/dev/null
    done
}
tell() {
    echo "orch-stacks $1"
    if [ ! -d "$dir" ]; then
        echo "the job was never started on this host"
        return
    fi
    end=$(($(uptime) + seconds))
    found=$(members)
    [ -n "$found" ] || echo "no process of the job is left on this host"
    printf '%s\n' "$found" | while read -r kind pid; do
        [ -n "$pid" ] || continue
        {
            title "$pid"
            left=$((end - $(uptime)))
            if [ "$left" -gt 0 ] && [ "$kind" -lt 3 ]; then
                by_spy "$pid" || by_itself "$pid" || by_kernel "$pid"
            else
                by_kernel "$pid"
            fi
        } | head -c 32768
    done
}
tell "$1" 2>/dev/null | head -c "$bytes"
exit 0
