# Prints the sizes that a job's log had at times, as job-wrap.sh notes them; the last ones of very many. Argument: job.
tail -c 262144 "$ORCH_HOST_DIR/jobs/$1/log-times"
