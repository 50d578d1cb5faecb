# Removes a downloaded profile and its request. Arguments: job, id.
dir=$ORCH_HOST_DIR/jobs/$1
rm -rf -- "$dir/profiles/$2" "$dir/profile-request.json"
