# Prints the notebook server in the folder `notebook` of this rank that runs: "orch-notebook JOB JSON", with its runtime file on the line.
folder=$ORCH_HOST_DIR/notebook
for file in "$folder"/jpserver-[0-9]*.json "$folder"/nbserver-[0-9]*.json; do
    [ -f "$file" ] || continue
    pid=${file##*-}
    pid=${pid%.json}
    tr '\000' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q jupyter || continue
    job=$(head -c 100 "$folder/job" 2>/dev/null | tr -d '[:space:]')
    printf 'orch-notebook %s ' "${job:--}"
    head -c 4000 "$file" | tr -d '\n'
    echo
    exit 0
done
exit 0
