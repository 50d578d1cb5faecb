# Prints a job's log as it is at this moment: a program may write faster than it is read. Arguments: job, the first byte.
log=$ORCH_HOST_DIR/jobs/$1/log
test -e "$log" && size=$(wc -c <"$log") && tail -c "+$(($2 + 1))" "$log" | head -c "$((size > $2 ? size - $2 : 0))"
