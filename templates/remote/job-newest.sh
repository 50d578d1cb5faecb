# Prints the name of the newest job of this rank whose name begins so. Argument: the beginning.
# shellcheck disable=SC2012 # names without blanks
newest=$(ls -td "$ORCH_HOST_DIR/jobs/$1"* 2>/dev/null | head -n 1)
echo "${newest##*/}"
