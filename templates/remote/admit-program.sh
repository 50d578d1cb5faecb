# orch-admit: writes the keys of members for one account of this machine, and nothing else. Standard input is
# the whole list: lines of authorized_keys with a day or time of expiry, a plain key, and the computer's id. sshd reads
# the file.
# orchestrator/remote/admit_program.py puts the line of the interpreter and orch_folder above.
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
export PATH LC_ALL
umask 022
: "${orch_folder:?}"
orch_most_bytes=262144 orch_most_lines=1000
orch_refuse() {
  printf 'orch-admit: %s; nothing was changed\n' "$1" >&2
  exit 2
}
orch_user=$(id -un)
[ "$(id -u)" -ne 0 ] || orch_user=${SUDO_USER:-$orch_user}
case $orch_user in
'' | [.-]* | *[!A-Za-z0-9._-]*) orch_refuse 'the name of the account is not a plain word' ;;
esac
[ "$#" -eq 0 ] || orch_refuse 'it takes no arguments'
mkdir -p -- "$orch_folder"
orch_new=$(mktemp -- "$orch_folder/.new.XXXXXX")
trap 'rm -f -- "$orch_new"' EXIT
trap 'exit 1' HUP INT TERM
head -c "$((orch_most_bytes + 1))" >"$orch_new"
[ "$(wc -c <"$orch_new")" -le "$orch_most_bytes" ] || orch_refuse 'the list is too long'
[ "$(wc -l <"$orch_new")" -le "$orch_most_lines" ] || orch_refuse 'the list has too many lines'
[ "$(tr -d '\n' <"$orch_new" | tr -d ' -~' | wc -c)" -eq 0 ] || orch_refuse 'the list is not plain text'
[ -z "$(tail -c 1 "$orch_new")" ] || orch_refuse 'the last line is cut off'
awk 'length($0) > 6200 { exit 1 }' "$orch_new" || orch_refuse 'a line is too long'
orch_kinds='ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp256|ecdsa-sha2-nistp384|ecdsa-sha2-nistp521'
orch_line="(restrict,port-forwarding,pty,)?expiry-time=\"[0-9]{8}([0-9]{6})?\" ($orch_kinds) [A-Za-z0-9+/]+={0,3} orch-computer-[0-9a-f]+"
if grep -a -E -v -x -q "$orch_line" "$orch_new"; then
  orch_refuse 'a line is not the key of a computer with a day of expiry'
fi
chmod 644 "$orch_new"
mv -f -- "$orch_new" "$orch_folder/$orch_user"
