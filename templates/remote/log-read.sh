# Prints a job's log as it is at this moment. Arguments: job, the first byte.
dir=$ORCH_HOST_DIR/jobs/$1
test -e "$dir/log" && tail -c "+$(($2 + 1))" "$dir/log"
