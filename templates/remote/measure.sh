# Prints how many bytes fetch.sh would send of a file or folder, 0 for one that does not exist. Argument: the path.
case $1 in
/*) path=$1 ;;
*) path=$HOME/${1#\~/} ;;
esac
[ -e "$path" ] || {
    echo 0
    exit
}
# A second name of one file is sent again (-l).
du -sbl -- "$path" 2>/dev/null | cut -f1
