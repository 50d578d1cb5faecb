# Puts a packed change into a destination. Arguments after the common ones: the digest of the new manifest, and the
# option that tells tar the compression, or nothing. Standard input: a tar stream of files/ (what is new), then meta/:
# manifest, owned, delete, prune (folders that may be empty now), complete (last: the stream came whole).
# Nothing in the destination changes before all has arrived; then each file is replaced by rename.
umask 022
[ -d "$state" ] || said=$(mkdir -p "$state" 2>&1) || fail "$said"
exec 9>>"$state/lock"
flock -n 9 || fail "another sync to $dest is under way"
fresh=
if [ ! -e "$dest" ] || { [ ! -e "$state/owned" ] && rmdir "$dest" 2>/dev/null; }; then
    fresh=yes
    new=$dest.orch-incoming
    said=$(mkdir -p "${new%/*}/" 2>&1) || fail "$said"
else
    [ -d "$dest" ] || fail "$dest is not a folder"
    new=$dest/.orch-incoming
fi
trap 'rm -rf "$new"' EXIT
[ ! -e "$new" ] || rm -rf "$new"
said=$(mkdir "$new" 2>&1) || fail "$said"
# shellcheck disable=SC2086 # one option or none
said=$(tar -x $4 -f - -C "$new" --no-same-owner 2>&1) || fail "$said"
[ -e "$new/meta/complete" ] || fail "the files came incomplete"
: >"$state/seal" || fail "cannot write to $state"
[ ! -e "$state/next" ] || rm -rf "$state/next"
said=$(mv -T "$new/meta" "$state/next" 2>&1) || fail "$said"
if [ -n "$fresh" ]; then
    [ -d "$new/files" ] || mkdir "$new/files"
    said=$(mv -T "$new/files" "$dest" 2>&1) || fail "$said"
else
    cd "$dest" || fail "cannot enter $dest"
    if [ -s "$state/next/delete" ]; then
        said=$(xargs -0 rm -f -- <"$state/next/delete" 2>&1) || fail "$said"
        xargs -0 -r rmdir --ignore-fail-on-non-empty -- <"$state/next/prune" 2>/dev/null
    fi
    if [ -d "$new/files" ]; then
        cd "$new/files" || fail "cannot enter $new"
        said=$(find . -type d -exec sh -c '
            dest=$1
            shift
            for folder; do
                [ -d "$dest/$folder" ] || mkdir "$dest/$folder" || exit 1
                find "$folder" -mindepth 1 -maxdepth 1 ! -type d -print0 |
                    xargs -0 -r mv -f -t "$dest/$folder" -- || exit 1
            done
        ' sh "$dest" {} + 2>&1) || fail "$said"
    fi
fi
said=$(mv -f -t "$state" "$state/next/manifest" "$state/next/owned" 2>&1) || fail "$said"
now=$(listing)
echo "${now%% *} $3" >"$state/seal"
exit 0
