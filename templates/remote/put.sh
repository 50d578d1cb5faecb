# Writes small files. Arguments: mode, then for each file its path and its size; standard input holds the contents one
# after the other. The mode is set before the content; a file is written by rename.
. ./path.sh
mode=$1
shift
fail() {
    printf '%s\n' "$1"
    exit 1
}
while [ $# -gt 0 ]; do
    orch_find_path "$1"
    # shellcheck disable=SC2154 # set by orch_find_path
    path=$orch_path
    size=$2
    shift 2
    said=$(mkdir -p "${path%/*}/" 2>&1) || fail "$said"
    [ ! -d "$path" ] || fail "$path is a folder"
    new=${path%/*}/.orch-put-$$
    said=$( (umask 077 && true >"$new" && chmod "$mode" "$new") 2>&1) || fail "$said"
    said=$(head -c "$size" 2>&1 >>"$new") || { rm -f "$new"; fail "$said"; }
    [ "$(wc -c <"$new")" -eq "$size" ] || { rm -f "$new"; fail "$path came incomplete"; }
    said=$(mv -f -T "$new" "$path" 2>&1) || { rm -f "$new"; fail "$said"; }
done
