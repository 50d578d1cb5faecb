# Tells what a destination holds: "orch-sync STATE ID", and the manifest behind it, unless the third argument is
# empty or that manifest's digest.
# STATE: none (no sync was here), clean (all is as the last sync left it), changed (somebody was at the files).
if [ ! -e "$state/owned" ]; then
    echo "orch-sync none -"
    exit 0
fi
what=changed
id=-
if [ -e "$state/seal" ] && [ -e "$state/manifest" ] && [ "$(listing)" = "$(cat "$state/seal")" ]; then
    what=clean
    id=$(sha256sum <"$state/manifest")
    id=${id%% *}
fi
echo "orch-sync $what $id"
if [ -n "$3" ] && [ "$what" = clean ] && [ "$3" != "$id" ]; then
    echo orch-manifest
    cat "$state/manifest"
fi
