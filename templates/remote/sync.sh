# Tree sync on one host, as a dialogue. Arguments: key of the state folder, destination.
# It prints "orch-sync STATE ID" and then reads lines from standard input:
#   manifest          prints the manifest behind ID, then "end" and NUL
#   inventory         prints what is here of earlier syncs, then "end" and NUL: O path of a file; D path of a folder;
#                     S mode path, the mode in hex with its kind; H checksum, two blanks, path. A path begins with ./
#                     here, a record ends in NUL.
#   apply ID [-z]     reads a tar stream and unpacks it into the destination; ID is the new manifest's digest
#   (end of input)    ends
# STATE: none (no earlier sync), clean (as the last sync left it), changed (files were changed since).
# State of one destination, outside of it: manifest (of the last complete sync), owned (paths of its files as ./PATH,
# NUL between them), folders (those of its folders), modes (a checksum of theirs, when a sync has ended), seal (the
# manifest's digest; written when a sync has ended, empty while one runs).
# An owned file whose inode changed after the seal was written (ctime) was changed by another program. That of a folder
# changes with every file that a program makes there, so that its mode is compared.
# Several hosts may share the destination (hosts of one computer, a network disk): each has its own name for the folder
# that receives files, which is in the state, and replaces files by rename.
. ./claim.sh
. ./path.sh
state=$ORCH_HOST_DIR/sync/$1
orch_find_path "$2"
# shellcheck disable=SC2154 # set by orch_find_path
dest=$orch_path
incoming=.orch-incoming
[ ! -s "$state/incoming" ] || read -r incoming <"$state/incoming"
umask 022
fail() {
    printf '%s\n' "$1" | head -n 1
    exit 1
}
tell_state() {
    what=none
    id=-
    if [ -e "$state/owned" ] || [ -e "$dest/$incoming" ]; then
        what=changed
        if [ -s "$state/seal" ] && cd "$dest" 2>/dev/null; then
            # shellcheck disable=SC2016 # the inner shell's own arguments
            newer=$(xargs -0 -r sh -c 'seal=$1; shift; exec find "$@" -maxdepth 0 -newercm "$seal" -print -quit' sh \
                "$state/seal" <"$state/owned" 2>&1)
            if [ -z "$newer" ] && [ "$(print_modes | sha256sum)" = "$(cat "$state/modes" 2>/dev/null)" ]; then
                what=clean
                read -r id <"$state/seal"
            fi
            cd /
        fi
    fi
    echo "orch-sync $what $id"
}
print_modes() {
    [ ! -s "$state/folders" ] || xargs -0 stat --printf '%A %n\0' -- <"$state/folders" 2>/dev/null
}
owned() {
    cat "$state/owned" "$dest/$incoming/meta/owned" "$dest/$incoming/meta/delete" 2>/dev/null
}
folders() {
    cat "$state/folders" "$dest/$incoming/meta/folders" "$dest/$incoming/meta/prune" 2>/dev/null
}
tell_inventory() {
    owned | sed -z 's/^/O/'
    folders | sed -z 's/^/D/'
    if cd "$dest" 2>/dev/null; then
        { owned; folders; } | xargs -0 -r stat --printf 'S%f %n\0' -- 2>/dev/null
        owned | xargs -0 -r sha256sum -z -- 2>/dev/null | sed -z 's/^/H/'
        cd /
    fi
}
# The stream holds files/ (what is new), then meta/: manifest, owned, folders, receiving (folders that hold new files),
# delete, prune (folders that may be empty now), modes/MODE (new folders of that mode), complete (last: the stream is
# complete). Nothing in the destination changes before all has arrived; then each file is replaced by rename.
apply() {
    [ -d "$state" ] || said=$( (umask 077 && mkdir -p "$state") 2>&1) || fail "$said"
    orch_take_claim "$state/claim" || fail "another sync to $dest is under way"
    if [ ! -s "$state/incoming" ]; then
        incoming=$(mktemp -u .orch-incoming-XXXXXXXX)
        echo "$incoming" >"$state/incoming" || fail "cannot write to $state"
    fi
    fresh=
    if [ ! -e "$dest" ] || { [ ! -e "$state/owned" ] && rmdir "$dest" 2>/dev/null; }; then
        fresh=yes
        parent=${dest%/*}/
        top=${dest##*/}$incoming
        [ -d "$parent" ] || said=$(mkdir -p "$parent" 2>&1) || fail "$said"
    else
        [ -d "$dest" ] || fail "$dest is not a folder"
        parent=$dest/
        top=$incoming
    fi
    new=$parent$top
    trap 'rm -rf "$new"' EXIT
    [ ! -e "$new" ] || rm -rf "$new"
    # shellcheck disable=SC2086 # one option or none
    said=$(tar -x $2 -f - -C "$parent" --one-top-level="$top" --no-same-owner -p 2>&1) || fail "$said"
    [ -e "$new/meta/complete" ] || fail "the files came incomplete"
    true >"$state/seal" || fail "cannot write to $state"
    if [ -n "$fresh" ]; then
        [ -d "$new/files" ] || mkdir "$new/files"
        if ! said=$(mv -T "$new/files" "$dest" 2>&1); then
            [ -d "$dest" ] || fail "$said"
            fresh= # another host that shares the destination was faster
            said=$(mv -T "$new" "$dest/$incoming" 2>&1) || fail "$said"
            new=$dest/$incoming
        fi
    fi
    if [ -z "$fresh" ]; then
        trap - EXIT # from here on meta/ lists for the next sync what may be here
        replace
    fi
    said=$(mv -f -t "$state" "$new/meta/manifest" "$new/meta/owned" "$new/meta/folders" 2>&1) || fail "$said"
    (cd "$dest" && print_modes | sha256sum) >"$state/modes" 2>/dev/null
    rm -rf "$new"
    trap - EXIT
    echo "$1" >"$state/seal"
}
replace() {
    cd "$dest" || fail "cannot enter $dest"
    if [ -s "$new/meta/delete" ]; then
        said=$(xargs -0 rm -f -- <"$new/meta/delete" 2>&1) || fail "$said"
    fi
    xargs -0 -r rmdir --ignore-fail-on-non-empty -- <"$new/meta/prune" 2>/dev/null
    for list in "$new"/meta/modes/*; do
        [ -e "$list" ] || continue
        said=$(xargs -0 mkdir -p -- <"$list" 2>&1) || fail "$said"
        xargs -0 chmod "${list##*/}" -- <"$list" 2>/dev/null # not all file systems have modes
    done
    [ -s "$new/meta/receiving" ] || return 0
    cd "$new/files" || fail "cannot enter $new"
    # shellcheck disable=SC2016 # the inner shell's own arguments
    said=$(xargs -0 sh -c '
        dest=$1
        shift
        for folder; do
            [ -d "$dest/$folder" ] || mkdir -p "$dest/$folder" || exit 255
            (
                set --
                for file in "$folder"/* "$folder"/.[!.]* "$folder"/..?*; do
                    if [ -L "$file" ] || [ -f "$file" ]; then
                        set -- "$@" "$file"
                    fi
                done
                if [ $# -gt 1000 ]; then
                    printf "%s\0" "$@" | xargs -0 mv -f -t "$dest/$folder" --
                else
                    exec mv -f -t "$dest/$folder" -- "$@"
                fi
            ) || exit 255
        done
    ' sh "$dest" <"$new/meta/receiving" 2>&1) || fail "$said"
    cd /
}
tell_state
while read -r verb first second; do
    case $verb in
    manifest)
        cat "$state/manifest"
        printf 'end\0\n'
        ;;
    inventory)
        tell_inventory
        printf 'end\0\n'
        ;;
    apply)
        apply "$first" "$second"
        exit 0
        ;;
    *)
        fail "sync: unknown word $verb"
        ;;
    esac
done
exit 0
