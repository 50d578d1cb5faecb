# Compares who sends a command with the owner of this host. Arguments: epoch, installation, who that is.
# A host without an owner, or with a lower epoch, gets this one. A higher epoch, or the same one of another installation,
# refuses: then the command is not run. Where nothing can be written, no one can have taken the host over.
folder=$HOME/.orch
file=$folder/owner
umask 077
mkdir -p "$folder" && : >>"$file.lock" || exit 0
(
    flock -w 10 9
    epoch='' installation='' rest=''
    [ ! -s "$file" ] || read -r epoch installation rest <"$file"
    case $epoch in *[!0-9]* | ??????????*) epoch='' ;; esac # ten digits: no epoch of ours
    if [ "$1 $2" = "$epoch $installation" ]; then
        exit 0
    fi
    if [ -n "$epoch" ] && [ "$1" -le "$epoch" ]; then
        echo "orch-taken-over $epoch $installation $rest"
        exit 79
    fi
    if echo "$1 $2 $3 $(date -u +%Y-%m-%dT%H:%M:%SZ)" >"$file.new" && mv -f "$file.new" "$file"; then
        exit 0
    fi
    [ -z "$epoch" ]
) 9>>"$file.lock"
