# Takes a sample of this host's chips into a file. Arguments: the source of chip-sample.sh, the file, its most bytes.
# It runs as the leader of a session: a tool that cannot be ended is still of the session, so that there is never a second one.
. ./claim.sh
orch_find_claim "$2.claim"
# shellcheck disable=SC2154,SC2086 # set by orch_find_claim: four words, of which the third is the session
set -- "$1" "$2" "$3" $orch_words
if [ $# = 7 ] && cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$6" '
    { sub(/.*\) /, "") }
    $1 != "Z" && $4 == session { found = 1 }
    END { exit !found }'; then
    exit 0
fi
orch_take_claim "$2.claim" || exit 0
/bin/sh -c "$1" orch | head -c "$3" >"$2.new" && mv -f -- "$2.new" "$2"
