# shellcheck shell=bash
# completion.bash - completes the command line of railsock(1). tests/completion_test.sh compares it
# with each --help. Needs nothing of the package bash-completion, but uses it for the commands that
# railsock runs.

# Options with a value of their own, as lists that begin and end with a blank.
_railsock_valued_run=' --wire --board --spin --ring --log --profile '
_railsock_valued_lab=' --hosts --device --timeout --memory --scratch '

# Words that begin with $cur. Not by compgen -W, which runs what it finds in them.
_railsock_words() {
    local words word

    read -r -d '' -a words <<<"$1"
    COMPREPLY=()
    for word in "${words[@]}"; do
        if [[ $word == "$cur"* ]]; then COMPREPLY+=("$word"); fi
    done
}

# Lines that begin with $cur, of which each is one word on the command line: anybody may have chosen
# them.
_railsock_lines() {
    local lines line word

    mapfile -t lines <<<"$1"
    COMPREPLY=()
    for line in "${lines[@]}"; do
        [[ $line && $line == "$cur"* ]] || continue
        printf -v word %q "$line"
        COMPREPLY+=("$word")
    done
}

_railsock_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

# Programs, by name or by path.
_railsock_programs() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
}

# The processes that run with the library.
_railsock_pids() {
    local file

    for file in /dev/shm/railsock-*/[1-9]*; do
        [ ! -e "/proc/${file##*/}/comm" ] || echo "${file##*/}"
    done
}

# Word $1 and what comes after it are another program's.
_railsock_command() {
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [ "$COMP_CWORD" -eq "$1" ]; then
        _railsock_programs
    else
        _railsock_files
    fi
}

# Completes the command that begins after the options, if the cursor is there. Options begin at word
# $1, those of $2 have a value. bash has made words of = and : too.
_railsock_after_options() {
    local i=$1 word

    while [ "$i" -lt "$COMP_CWORD" ]; do
        word=${COMP_WORDS[i]}
        case $word in
        --)
            _railsock_command $((i + 1))
            return
            ;;
        -*)
            if [[ $2 == *" $word "* && ${COMP_WORDS[i + 1]-} != '=' ]]; then i=$((i + 1)); fi
            i=$((i + 1))
            while [[ ${COMP_WORDS[i]-} == [=:] ]]; do i=$((i + 2)); done
            ;;
        *)
            _railsock_command "$i"
            return
            ;;
        esac
    done
    [[ $i -eq $COMP_CWORD && $cur != -* ]] || return 1
    _railsock_command "$i"
}

# Values of the options that have some; 1: $prev is none of them.
_railsock_value() {
    local before word

    case $1$prev in
    run--wire | doctor--wire) _railsock_words 'auto shm verbs' ;;
    run--board)
        _railsock_words 'auto eager after= never'
        [ "${COMPREPLY[*]}" != after= ] || compopt -o nospace 2>/dev/null
        ;;
    run--spin) _railsock_words auto ;;
    run--log) _railsock_words 'error warn info debug' ;;
    run--report)
        _railsock_words 'always json:'
        [ "${COMPREPLY[*]}" != json: ] || compopt -o nospace 2>/dev/null
        ;;
    run--profile)
        before=${cur%"${cur##*,}"} # several, with commas
        COMPREPLY=()
        for word in latency throughput frugal; do
            if [[ $before$word == "$cur"* ]]; then COMPREPLY+=("$before$word"); fi
        done
        ;;
    stat--pid | tap--pid) _railsock_words "$(_railsock_pids)" ;;
    stat--program | tap--program) _railsock_lines "$(_railsock_pids | sed 's|.*|/proc/&/comm|' | xargs -r cat 2>/dev/null | sort -u)" ;;
    stat--path | tap--path) _railsock_words 'tcp shm verbs' ;;
    check--user) mapfile -t COMPREPLY < <(compgen -u -- "$cur") ;;
    ab--order) _railsock_words 'abba random' ;;
    ab--server | ab--ssh) _railsock_programs ;;
    ab--server-host) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
    ab--html | ab--server-railsock | tap--output | tap-o) _railsock_files ;;
    lab--device) _railsock_words 'rxe none' ;;
    lab--hosts) _railsock_words '1 2 3 4' ;;
    lab--scratch)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        ;;
    # These may be anything.
    run--ring | stat--port | ab--run | ab--pairs | ab-n | ab--warm-up | ab--seed | ab--metric | ab--metric-lower | \
        ab--port | ab--address | ab--address-tcp | ab--timeout | lab--timeout | lab--memory | \
        tap--port | tap--bytes | tap--count | tap--seconds | tap--buffer) ;;
    *) return 1 ;;
    esac
    return 0
}

_railsock_check() {
    local i

    for ((i = COMP_CWORD - 1; i > 1 && i >= COMP_CWORD - 3; i--)); do
        [ "${COMP_WORDS[i]}" = --match ] || continue
        case $((COMP_CWORD - i)) in
        1) _railsock_words 'server client' ;;
        2) _railsock_programs ;;
        esac
        return
    done
    if [[ $cur == -* ]]; then
        _railsock_words '--match --user --help'
    else
        _railsock_files
    fi
}

_railsock() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} i
    local options command=${COMP_WORDS[1]}

    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        _railsock_words 'run stat tap check ab doctor lab help --help --version'
        return
    fi
    if [ "$command" = help ]; then
        [ "$COMP_CWORD" -gt 2 ] || _railsock_words 'run stat tap check ab doctor lab'
        return
    fi
    # --wire=shm and info:FILE are three words.
    if [[ $cur == [=:] ]]; then
        i=$((COMP_CWORD - 1))
        cur=
    elif [[ $prev == [=:] ]]; then
        i=$((COMP_CWORD - 2))
    else
        i=0
    fi
    if [ "$i" -gt 1 ]; then
        prev=${COMP_WORDS[i]}
        # --log LEVEL:FILE, --report=json:FILE
        if [[ $command == run && ${COMP_WORDS[i + 1]-} == : &&
            (${COMP_WORDS[i - 1]} == --log || $prev == json || ${COMP_WORDS[i - 2]} == --log) ]]; then
            _railsock_files
            return
        fi
    fi
    case $command in
    run) options='--tcp --rail --wire --board --spin --ring --log --profile --report --help' ;;
    stat) options='--pid --program --port --path --wide --rate --watch --json --prometheus --help' ;;
    tap) options='--pid --program --port --path --output --bytes --count --seconds --buffer --help' ;;
    doctor) options='--wire --json --help' ;;
    ab) options='--help --pairs --warm-up --order --seed --metric --metric-lower --server --port --server-host
        --server-railsock --ssh --address --address-tcp --run --timeout --json --html' ;;
    lab) options='--hosts --device --timeout --memory --scratch --verbose --help' ;;
    esac
    # What belongs to the command that is run is not ours.
    case $command in
    run) ! _railsock_after_options 2 "$_railsock_valued_run" || return 0 ;;
    lab)
        if [ "$COMP_CWORD" -eq 2 ]; then
            _railsock_words 'run shell image --help'
            return
        fi
        [ "${COMP_WORDS[2]}" != image ] || return 0
        [ "${COMP_WORDS[2]}" != run ] || ! _railsock_after_options 3 "$_railsock_valued_lab" || return 0
        ;;
    ab)
        for ((i = 2; i < COMP_CWORD; i++)); do
            [ "${COMP_WORDS[i]}" = -- ] || continue
            _railsock_command $((i + 1))
            return
        done
        ;;
    esac
    ! _railsock_value "$command" || return 0
    if [ "$command" = check ]; then
        _railsock_check
    elif [[ $cur == -* ]]; then
        _railsock_words "$options"
        # Its value is part of the word.
        [[ $command != run || ${COMPREPLY[*]} != --report ]] || compopt -o nospace 2>/dev/null
    elif [ "$command" = doctor ]; then
        _railsock_programs
    elif [ "$command" = tap ]; then
        _railsock_words "$(_railsock_pids)"
    fi
}

complete -F _railsock railsock
