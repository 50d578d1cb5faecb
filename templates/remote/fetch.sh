# Streams a file or a folder as tar. Arguments: a mark, printed alone on a line before the archive (after any greeting
# of a login shell), the path.
. ./path.sh
orch_find_path "$2"
# shellcheck disable=SC2154 # set by orch_find_path
path=$orch_path
[ -e "$path" ] || [ -L "$path" ] || {
    printf '%s\n' "$2 does not exist"
    exit 1
}
case $path in
/ | */. | */..) folder=$path name=. ;;
*/) path=${path%/} folder=${path%/*} name=${path##*/} ;;
*) folder=${path%/*} name=${path##*/} ;;
esac
printf '\n%s\n' "$1"
cd -- "${folder:-/}" || exit 1
# A second name of one file is sent as a file; GNU tar else reads \ in a name as an escape.
exec tar -c -f - --format=gnu --hard-dereference --no-unquote -- "$name" 2>/dev/null
