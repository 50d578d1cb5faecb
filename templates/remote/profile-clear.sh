# Removes a profile that was brought home, and its request. Arguments: job, id.
dir=$HOME/.orch/jobs/$1
rm -rf -- "$dir/profiles/$2" "$dir/profile-request.json"
