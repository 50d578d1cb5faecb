# What the ranks of one home share is written by one of them; the others wait, and find it complete.
orch_share() { # folder of the claim, what is written; waits until no one else writes it
    orch_waited=0
    until orch_take_claim "$1"; do
        [ "$orch_waited" -lt 7200 ] || orch_fail "$2 is still being written by another host after an hour" "on a host: ls -l $1"
        [ "$((orch_waited % 60))" != 2 ] || printf 'waiting: another host that has this home folder writes %s\n' "$2"
        orch_waited=$((orch_waited + 1))
        sleep 0.5
    done
    # Its time moves while this process lives: that is all that other hosts can see of it.
    # shellcheck disable=SC2154 # set by orch_take_claim
    # shellcheck disable=SC2046 # four words; not `kill -0`, as another process may get this one's number
    (while sleep 10 && orch_runs $(cat -- "$orch_claim"); do touch -c -- "$orch_claim"; done) </dev/null >/dev/null 2>&1 &
    orch_beat=$!
}
orch_unshare() {
    kill "$orch_beat" 2>/dev/null || :
    orch_give_claim
}
