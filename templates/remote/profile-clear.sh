# Removes a downloaded profile and its request. Arguments: job, id.
dir=$HOME/.orch/jobs/$1
rm -rf -- "$dir/profiles/$2" "$dir/profile-request.json"
