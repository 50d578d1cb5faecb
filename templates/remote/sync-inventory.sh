# Tells, file by file, what a changed destination holds. Records end in NUL: O owned path; S permissions path;
# H checksum, two blanks, path. The first record is empty, so that a greeting of the login shell stays apart.
owned() {
    cat "$state/owned" "$state/next/owned" 2>/dev/null
}
printf '\0'
owned | sed -z 's/^/O/'
cd "$dest" 2>/dev/null || exit 0
owned | xargs -0 -r stat --printf 'S%A %n\0' -- 2>/dev/null
owned | xargs -0 -r sha256sum -z -- 2>/dev/null | sed -z 's/^/H/'
exit 0
