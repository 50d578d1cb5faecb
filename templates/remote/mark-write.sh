# Sets a mark of this rank, by rename. Arguments: its name, the digest.
umask 077
mkdir -p "$ORCH_HOST_DIR/marks" && cd "$ORCH_HOST_DIR/marks" && printf %s "$2" >".$1.$$" && mv ".$1.$$" "$1"
