# Finds the place of a path as orch names it: absolute; .orch/host and orch_workdir, which are of this rank; else below home.
orch_find_path() { # path; sets orch_path
    case $1 in
    /*) orch_path=$1 ;;
    \~) orch_path=$HOME/ ;;
    *)
        orch_path=${1#\~/}
        case $orch_path in
        orch_workdir | orch_workdir/*) orch_path=$ORCH_HOST_DIR/workdir${orch_path#orch_workdir} ;;
        .orch/host | .orch/host/*) orch_path=$ORCH_HOST_DIR${orch_path#.orch/host} ;;
        *) orch_path=$HOME/$orch_path ;;
        esac
        ;;
    esac
}
