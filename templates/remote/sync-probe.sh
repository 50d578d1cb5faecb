# Tells what a destination holds: "orch-sync STATE ID", and the manifest behind it, unless the third argument is
# empty or that manifest's digest.
# STATE: none (no sync was here), clean (all is as the last sync left it), changed (somebody was at the files).
what=changed
id=-
if [ ! -e "$state/owned" ] && [ ! -e "$state/next/owned" ]; then
    what=none
elif [ -s "$state/seal" ]; then
    read -r sealed known <"$state/seal"
    now=$(listing)
    if [ "${now%% *}" = "$sealed" ]; then
        what=clean
        id=$known
    fi
fi
echo "orch-sync $what $id"
if [ -n "$3" ] && [ "$what" = clean ] && [ "$3" != "$id" ]; then
    echo orch-manifest
    cat "$state/manifest"
fi
