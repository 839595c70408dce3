# shellcheck shell=bash
#
# tests/apps/many.sh - one row of the long list for each program: the legs of a case, and the table.
# Sourced by tests/apps/many, after lib.sh.
#
# shellcheck disable=SC2154,SC2034 # variables from and for lib.sh

rows=() # "what|version|checked|tcp|shm|one side|share|remark" each
bad=0

# The Debian version of the package that a program is from, without epoch and revision.
version_of() {
    local file package

    file=$(readlink -f "$(command -v "$1")") || return
    # A package may still have in /bin what is in /usr/bin.
    package=$(dpkg-query -S "$file" "${file#/usr}" 2>/dev/null | head -n 1)
    [ -n "$package" ] || return
    dpkg-query -W -f '${Version}\n' "${package%%:*}" 2>/dev/null | head -n 1 | sed 's/^[0-9]*://; s/[-+~].*//'
}

# leg NAME FUNCTION [ARGUMENT...]: one case in the present mode; $why is empty if all was right,
# $share the reports' share, $reasons why connections did not board.
leg() {
    local name=$1 result

    shift
    why='' servers=() server_in=/dev/null share='' reasons=''
    work=$(mktemp -d "$base/XXXXXX")
    REPORTS=$work/reports
    mkdir "$REPORTS"
    # Servers that will not be root's work here.
    [ "$(id -u)" -ne 0 ] || chown nobody "$work"
    chmod 755 "$work"
    out=$work/client.out err=$work/client.err
    free_port
    "$@" || fail "$1 failed"
    stop_servers
    result=$("$python" "$apps/reports.py" "$REPORTS")
    read -r share bytes reasons <<<"$result"
    if [ -n "$why" ]; then
        why=${why:0:300}
        echo "not ok $name: $why"
        tail -n 4 "$work"/server.err "$err" 2>/dev/null | cut -c 1-200 | sed 's/^/    /'
        [ -z "${APPS_KEEP-}" ] || { rm -rf "$APPS_KEEP" && cp -r "$work" "$APPS_KEEP"; }
    fi
    rm -rf "$work"
}

# app WHAT PROGRAM CHECKED PATH REMARK FUNCTION [ARGUMENT...]
#   PROGRAM   is needed, and gives the version
#   CHECKED   bytes: they are compared; result: what the program itself says
#   PATH      rail: with the library on both sides some bytes must have gone over it; tcp: none may have;
#             any: so short that either is right; inner: rail, and the servers talk among themselves;
#             peers: rail, and there are only clients
app() {
    local what=$1 program=$2 checked=$3 path=$4 remark=$5 start cell on_rail=- leg_mode side trouble=''

    local -A cells=()

    shift 5
    [[ $what == *"${APPS-}"* ]] || return 0
    if ! command -v "$program" >/dev/null; then
        echo "skip $what: $program is not installed"
        return 0
    fi
    for leg_mode in ${APPS_LEGS:-tcp shm server-only client-only}; do
        MODE=$wire SERVER=on CLIENT=on
        case $leg_mode in
        plain) SERVER=off CLIENT=off ;;
        tcp) MODE=tcp ;;
        server-only) CLIENT=off ;;
        client-only) SERVER=off ;;
        esac
        start=${EPOCHREALTIME/./}
        leg "$leg_mode.$what" "$@"
        if [ -z "$why" ]; then
            judge_leg "$leg_mode" "$path"
            [ -z "$why" ] || echo "not ok $leg_mode.$what: $why"
        fi
        cell=ok
        if [ -n "$why" ]; then
            cell=FAILED trouble=$why bad=$((bad + 1))
        else
            echo "ok $leg_mode.$what  # share ${share:--} %, $(((${EPOCHREALTIME/./} - start) / 100000)) tenths of a second"
        fi
        cells[$leg_mode]=$cell
        [ "$leg_mode" != "$wire" ] || {
            on_rail="${share:-0.0} %"
            # What the table says for those whose bytes stay on TCP, if nobody has said more.
            [ -n "$remark" ] || ! awk -v s="${share:-0}" 'BEGIN { exit !(s < 50) }' || remark=${reasons:+on TCP: $reasons}
        }
    done
    side=ok
    [ -n "${cells[server-only]-}${cells[client-only]-}" ] || side=''
    [[ ${cells[server-only]-}${cells[client-only]-} != *FAILED* ]] || side=FAILED
    rows+=("$what|$(version_of "$program")|$checked|${cells[tcp]-}|${cells[$wire]-}|$side|$on_rail|${trouble:-$remark}")
}

judge_leg() { # LEG PATH
    case $1.$2 in
    "$wire".any | server-only.inner | client-only.peers) ;;
    "$wire".rail | "$wire".inner | "$wire".peers) [ "${share:-0.0}" != 0.0 ] || fail "nothing went over a rail (on TCP: ${reasons:-none})" ;;
    *) [ "${share:-0.0}" = 0.0 ] || fail "$share % of $bytes bytes went over a rail, none should have" ;;
    esac
}

table() {
    local row

    {
        echo "PROGRAM|VERSION|CHECKED|TCP|${wire^^}|ONE SIDE|ON THE RAIL|REMARK"
        for row in "${rows[@]}"; do echo "$row"; done
    } | awk -F '|' '
        { for (i = 1; i <= NF; i++) { cell[NR, i] = $i; if (length($i) > w[i]) w[i] = length($i) } fields = NF }
        END {
            for (r = 1; r <= NR; r++) {
                line = ""
                for (i = 1; i < fields; i++)
                    line = line sprintf(i == 7 ? "%" w[i] "s  " : "%-" w[i] "s  ", cell[r, i])
                line = line cell[r, fields]
                sub(/ +$/, "", line)
                print line
            }
        }'
}
