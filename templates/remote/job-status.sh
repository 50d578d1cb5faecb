# Prints the state of jobs. Arguments: sums that are known, with spaces; jobs. One line for each: "orch-job JOB PHASE RC BYTES STEP AGE DOING ENDED-BY LAST-LINE".
# STEP, AGE (milliseconds) and DOING come from the heartbeat files of the job's processes, - where there is none. DOING is
# no-storage where any of them ended as it cannot use its bucket (trainer/heartbeat.py), else that of the slowest one.
# "orch-ran JOB HUNDREDTHS" comes before where it is known for how long the job has run, by the host's uptime.
# ENDED-BY is the reason of whoever sent the job a signal (job-kill.sh), - where no one did.
# LAST-LINE is the log's last one. For a job that failed, "orch-tail JOB SUM TEXT" comes before: the end of the log, gzip in
# base64, in which error_lines.py finds the cause. Of a known SUM the text is not sent again.
# The state is a function of the folder: rc, then the claim, then rc again, for the job may end between two reads.
. ./claim.sh
read_beat() { # the first line of a heartbeat file, into beat_step (- if it holds no whole number) and beat_doing
    beat=
    beat_step=-
    beat_doing=-
    read -r beat <"$1" || true
    case $beat in
    *'"step"'*)
        rest=${beat#*'"step"'}
        rest=${rest#"${rest%%[!: ]*}"}
        number=${rest%%[!0-9]*}
        # A partly written file must not give part of a number: another character has to follow it.
        case ${rest#"$number"} in
        ,* | "}"* | ' '*) ;;
        *) number= ;;
        esac
        ;;
    *)
        number=${beat%"${beat##*[![:space:]]}"}
        ;;
    esac
    case $number in
    '' | *[!0-9]* | ????????????????*) ;;
    *) beat_step=$number ;;
    esac
    case $beat in
    *'"phase": "'*'"'*)
        rest=${beat#*'"phase": "'}
        rest=${rest%%'"'*}
        case $rest in
        '' | *[!a-z-]* | ????????????????????*) ;;
        *) beat_doing=$rest ;;
        esac
        ;;
    esac
}
slowest() { # of the heartbeat files in a folder: the smallest step; of the oldest beat its age and its phase
    step=-
    age=-
    doing=-
    bucketless=
    set -- "$1"/heartbeat "$1"/heartbeat.[0-9]*
    [ -e "$1" ] || [ -e "$2" ] || return 0
    now=$(date +%s%3N)
    found=$(LC_ALL=C stat -L -c '%.3Y %s %F|%n' -- "$@" 2>/dev/null)
    case $now in '' | *[!0-9]*) return 0 ;; esac
    while read -r changed size kind; do
        case $kind in regular*) ;; *) continue ;; esac
        case $changed in *[!0-9.]* | '') continue ;; esac
        since=$((now - ${changed%.*}${changed#*.}))
        [ "$since" -ge 0 ] || since=0
        beat_step=-
        beat_doing=-
        [ "$size" -gt 4096 ] || read_beat "${kind#*|}" 2>/dev/null
        if [ "$beat_step" != - ] && { [ "$step" = - ] || [ "$beat_step" -lt "$step" ]; }; then
            step=$beat_step
        fi
        [ "$beat_doing" != no-storage ] || bucketless=$beat_doing
        if [ "$age" = - ] || [ "$since" -gt "$age" ]; then
            age=$since
            doing=$beat_doing
        fi
    done <<EOF
$found
EOF
    doing=${bucketless:-$doing}
}
reason() { # the first word of ended-by; unknown where a full disk kept no more than its name
    why=-
    [ -e "$1/ended-by" ] || return 0
    read -r why rest <"$1/ended-by" || true
    case $why in '' | *[!a-z-]* | ????????????????????*) why=unknown ;; esac
}
for_how_long() { # phase, folder of a job: into ran; - where it is not known
    ran=
    case $1 in
    running)
        began=$(sed -n 's/^began=//p' "$2/job")
        case $began in '' | *[!0-9]* | ????????????*) ;; *)
            read -r up rest </proc/uptime
            ran=$((${up%.*}${up#*.} - began))
            ;;
        esac
        ;;
    finished) [ ! -e "$2/ran" ] || ran=$(head -c 15 "$2/ran") ;;
    esac
    case $ran in '' | *[!0-9]* | ????????????*) ran=- ;; esac
}
known=$1
shift
for job; do
    dir=$ORCH_HOST_DIR/jobs/$job
    rc=-
    bytes=0
    last=
    if [ ! -d "$dir" ]; then
        phase=absent
    elif [ -e "$dir/rc" ]; then
        phase=finished
    elif orch_is_held "$dir/claim"; then
        phase=running
    elif [ -e "$dir/rc" ]; then
        phase=finished
    elif [ -e "$dir/job" ]; then
        phase=lost
    else
        phase=absent
    fi
    [ "$phase" = finished ] && rc=$(tr -d ' ' <"$dir/rc")
    if [ -e "$dir/log" ]; then
        bytes=$(wc -c <"$dir/log")
        last=$(tail -c 1000 "$dir/log" | tr '\r\000-\011' '\n' | grep -a '[^[:space:]]' | tail -n 1)
    fi
    case $rc in
    - | 0) ;;
    *)
        sum=$(tail -c 49152 "$dir/log" | sha256sum | head -c 32)
        case " $known " in *" $sum "*) ended= ;; *) ended=" $(tail -c 49152 "$dir/log" | gzip -nc | base64 | tr -d '\n')" ;; esac
        printf 'orch-tail %s %s%s\n' "$job" "$sum" "$ended"
        ;;
    esac
    for_how_long "$phase" "$dir" 2>/dev/null
    [ "$ran" = - ] || printf 'orch-ran %s %s\n' "$job" "$ran"
    slowest "$dir"
    reason "$dir"
    printf 'orch-job %s %s %s %s %s %s %s %s %s\n' "$job" "$phase" "$rc" "$bytes" "$step" "$age" "$doing" "$why" "$last"
done
