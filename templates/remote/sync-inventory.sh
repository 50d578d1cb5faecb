# Tells, file by file, what a changed destination holds. Records end in NUL: O owned path; S permissions path;
# H checksum, two blanks, path. The first record is empty, so that a greeting of the login shell stays apart.
printf '\0'
sed -z 's/^/O/' "$state/owned"
cd "$dest" 2>/dev/null || exit 0
xargs -0 -r stat --printf 'S%A %n\0' -- <"$state/owned" 2>/dev/null
xargs -0 -r sha256sum -z -- <"$state/owned" 2>/dev/null | sed -z 's/^/H/'
exit 0
