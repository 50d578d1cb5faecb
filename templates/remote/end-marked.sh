# Ends every process that carries a mark in its environment. Arguments: NAME=VALUE, seconds between TERM and KILL.
# Exit status: 0 none is left, 1 some are (their process ids are printed).
. ./end-processes.sh
mark=$1
end_members "$2" && exit 0
echo "still running: $left"
exit 1
