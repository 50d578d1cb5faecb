# Common to the scripts of tree sync; put before each of them. Arguments: key of the state folder, destination.
# State of one destination, outside of it: manifest (what the last whole sync sent), owned (its paths, NUL between
# them), seal (a checksum over sizes and times of the owned files, and the manifest's digest; empty while a sync is
# under way), next (what the sync under way brings).
# shellcheck disable=SC2317 # not every script calls every function
state=$HOME/.orch/sync/$1
case $2 in
/*) dest=$2 ;;
*) dest=$HOME/$2 ;;
esac
listing() {
    cd "$dest" 2>/dev/null && xargs -0 -r stat --printf '%A %s %.9Y %.9Z %n\0' -- <"$state/owned" 2>&1 | sha256sum
}
fail() {
    printf '%s\n' "$1" | head -n 1
    exit 1
}
