# Sets ORCH_HOST_DIR, the folder of one rank on one machine, which every script of orch begins with: several hosts may have one
# home folder (NFS). ORCH_HOST_NAME, which orch exports, names cluster, generation and rank. The machine's id must not be shown
# (machine-id(5), systemd, read November 2026), so its hash is used.
case ${ORCH_HOST_DIR:-} in
*/"${ORCH_HOST_NAME:=host}"-*) ;;
*)
    orch_machine=
    { read -r orch_machine </etc/machine-id; } 2>/dev/null || :
    orch_machine=$(printf 'orch %s' "${orch_machine:-$(uname -n)}" | sha256sum)
    ORCH_HOST_DIR=$HOME/.orch/hosts/$ORCH_HOST_NAME-${orch_machine%"${orch_machine#????????}"}
    export ORCH_HOST_DIR
    ;;
esac
