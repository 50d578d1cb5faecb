# Functions that end processes, for the scripts that include this one. `mark` is NAME=VALUE in their environment; `group` a
# process group and session, where there is one. Deadlines are times on the clock since boot, whatever a pass over /proc takes; a
# pass is two runs of grep, whatever the number of processes.
group=
kill_seconds=10 # how long KILL may take: a process that leaves the kernel, with much memory, needs seconds
now() { # hundredths of a second since boot
    read -r up rest </proc/uptime
    echo "$((${up%.*} * 100 + 1${up#*.} - 100))"
}
members() { # each process once: a second TERM would mean something else to a program
    {
        # shellcheck disable=SC2154 # the script that includes this one sets the mark
        in_all_processes environ -zxF -e "$mark"
        # Fields of stat after the name: state, parent, group, session, numbers. No name contains so many numbers.
        [ -z "$group" ] || in_all_processes stat -E -e "\) [^ZX] [0-9]+ ($group [0-9]+|[0-9]+ $group)( -?[0-9]+){20}"
    } | sort -un | tr '\n' ' '
}
in_all_processes() { # file of /proc/PID, arguments of grep: ids of the processes whose file matches
    file=$1
    shift
    # printf is the shell's own, so no limit of arguments applies to it, and xargs keeps that of grep.
    (cd /proc && printf '%s\0' [0-9]*/"$file" | xargs -0 grep -ls "$@") | sed 's|/.*||'
}
end_members() { # seconds between TERM and KILL. Status 1: some are left, in `left`
    left=$(members)
    [ -n "$left" ] || return 0
    # shellcheck disable=SC2086 # a list of numbers
    kill -TERM $left 2>/dev/null
    killing=
    pause=5
    until=$(($(now) + $(printf '%.0f' "${1}e2")))
    while left=$(members) && [ -n "$left" ]; do
        if [ "$(now)" -ge "$until" ]; then
            [ -z "$killing" ] || return 1
            killing=1
            pause=5
            until=$(($(now) + kill_seconds * 100))
        fi
        # Again at each pass: a process may have been started since the last one. A group is killed as one.
        # shellcheck disable=SC2086 # a list of numbers
        [ -z "$killing" ] || kill -KILL $left ${group:+"-$group"} 2>/dev/null
        sleep "0.$(printf '%02d' "$pause")"
        pause=$((pause * 2))
        [ "$pause" -le 50 ] || pause=50
    done
}
