# Puts a packed change into a destination. Standard input: a tar stream of files/ (what is new), then meta/: manifest,
# owned, delete, prune (folders that may be empty now), complete (last: the stream came whole). Third argument: the
# option that tells tar the compression, or nothing. Nothing in the destination changes before all has arrived; then each file is
# replaced by rename.
umask 022
mkdir -p "$state" 2>/dev/null || fail "cannot make $state"
exec 9>>"$state/lock"
flock -n 9 || fail "another sync to $dest is under way"
parent=${dest%/*}
mkdir -p "${parent:-/}" 2>/dev/null
fresh=
if [ ! -e "$dest" ] || rmdir "$dest" 2>/dev/null; then
    fresh=yes
    new=$dest.orch-incoming
else
    [ -d "$dest" ] || fail "$dest is not a folder"
    new=$dest/.orch-incoming
fi
rm -rf "$new"
said=$(mkdir "$new" 2>&1) || fail "$said"
trap 'rm -rf "$new"' EXIT
# shellcheck disable=SC2086 # one option or none
said=$(tar -x $3 -f - -C "$new" --no-same-owner 2>&1) || fail "$(printf '%s\n' "$said" | head -n 1)"
[ -e "$new/meta/complete" ] || fail "the files came incomplete"
mkdir -p "$new/files"
rm -f "$state/seal"
said=$(cat "$new/meta/owned" 2>&1 >>"$state/owned") || fail "$said"
if [ -n "$fresh" ]; then
    said=$(mv -T "$new/files" "$dest" 2>&1) || fail "$said"
else
    said=$(cd "$dest" && xargs -0 -r rm -f -- <"$new/meta/delete" 2>&1) || fail "$said"
    (cd "$dest" && xargs -0 -r rmdir --ignore-fail-on-non-empty -- <"$new/meta/prune" 2>/dev/null)
    cd "$new/files" || fail "cannot enter $new"
    said=$(find . -type d -exec sh -c '
        dest=$1
        shift
        for folder; do
            [ -d "$dest/$folder" ] || mkdir "$dest/$folder" || exit 1
            find "$folder" -mindepth 1 -maxdepth 1 ! -type d -print0 |
                xargs -0 -r mv -f -t "$dest/$folder" -- || exit 1
        done
    ' sh "$dest" {} + 2>&1) || fail "$(printf '%s\n' "$said" | head -n 1)"
    cd /
fi
for name in manifest owned; do
    said=$(mv -f "$new/meta/$name" "$state/$name" 2>&1) || fail "$said"
done
listing >"$state/seal.new" && mv -f "$state/seal.new" "$state/seal"
exit 0
