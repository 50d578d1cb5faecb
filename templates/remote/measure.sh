# Prints how many bytes fetch.sh would send of a file or folder, 0 for one that does not exist. Argument: the path.
. ./path.sh
orch_find_path "$1"
# shellcheck disable=SC2154 # set by orch_find_path
path=$orch_path
[ -e "$path" ] || {
    echo 0
    exit
}
# A second name of one file is sent again (-l).
du -sbl -- "$path" 2>/dev/null | cut -f1
