#!/bin/bash
# tests/completion_test.sh - tools/completion.bash, as bash would call it: that it offers what each
# --help has, the values of options, and the commands that railsock runs. A second or two.
set -u

cd "$(dirname "$0")/.." || exit 1
build=$(readlink -f "${RAILSOCK_TEST_BUILD:-build}")
dir=$(mktemp -d "${TMPDIR:-/tmp}/completion_test.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
[ -x "$build/railsock" ] || { echo "not ok completion: $build/railsock is not built"; exit 1; }

# offers LINE: what is offered at the end of LINE, whose words bash breaks at blanks, = and :. On
# one line, in order.
offers() {
    local rest=$1 word='' char

    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=()
    while [ -n "$rest" ]; do
        char=${rest:0:1} rest=${rest:1}
        case $char in
        ' ')
            [ -z "$word" ] || COMP_WORDS+=("$word")
            word=
            ;;
        [=:])
            [ -z "$word" ] || COMP_WORDS+=("$word")
            if [ -n "$rest" ] && [ "${rest:0:1}" != ' ' ]; then
                COMP_WORDS+=("$char")
                word=
            else
                word=$char
            fi
            ;;
        *) word+=$char ;;
        esac
    done
    COMP_WORDS+=("$word")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _railsock railsock "$word" "${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null
    printf '%s\n' "${COMPREPLY[@]}" | sort | xargs
}

# expect NAME LINE WORDS
expect() {
    local got

    got=$(offers "$2")
    if [ "$got" = "$3" ]; then
        echo "ok completion.$1"
    else
        echo "not ok completion.$1: '$2' offers '$got', not '$3'"
    fi
}

# shellcheck source=tools/completion.bash
. tools/completion.bash || { echo 'not ok completion.loads: it does not'; exit 1; }
out=$(complete -p railsock 2>&1)
if [ "$out" = 'complete -F _railsock railsock' ]; then echo 'ok completion.loads'; else echo "not ok completion.loads: $out"; fi

# ---- it says what --help says
commands=$("$build/railsock" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
expect commands 'railsock ' "$(printf '%s\n' "$commands" help --help --version | sort | xargs)"
for command in $commands; do
    sub=$command
    [ "$command" != lab ] || sub='lab run'
    expect "options[$command]" "railsock $sub --" "$(tests/docs.py "$build" options "$command" | grep -- '^--' | sort | xargs)"
done
for action in run shell image; do
    "$build/railsock" lab --help | grep -q "^  $action " || echo "not ok completion.lab_actions: --help has no $action"
done
expect lab_actions 'railsock lab ' "--help image run shell"
expect profiles 'railsock run --profile ' \
    "$("$build/railsock" run --help | sed -n '/^A profile/,$ s/^  \([a-z]\{1,\}\) .*/\1/p' | sort | xargs)"

# Each value that is offered is one that the command takes.
# shellcheck disable=SC2046 # words
for option in --wire --board --spin --log; do
    for value in $(offers "railsock run $option "); do
        [ "$value" != after= ] || value=after=8
        if out=$("$build/railsock" run $option "$value" true 2>&1); then
            echo "ok completion.takes[$option $value]"
        else
            echo "not ok completion.takes[$option $value]: $out"
        fi
    done
done
for path in $(offers 'railsock stat --path '); do
    "$build/railsock" stat --path "$path" >/dev/null 2>&1
    if [ $? -ne 2 ]; then echo "ok completion.takes[--path $path]"; else echo "not ok completion.takes[--path $path]: refused"; fi
done

# ---- values
expect beginning 'railsock st' stat
expect wire 'railsock run --wire ' 'auto shm verbs'
expect wire_begun 'railsock run --tcp --wire v' verbs
expect wire_joined 'railsock run --wire=' 'auto shm verbs'
expect wire_joined_begun 'railsock run --wire=s' shm
expect board 'railsock run --board ' 'after= auto eager never'
expect profile_second 'railsock run --profile latency,f' latency,frugal
expect report 'railsock run --report=' 'always json:'
expect path 'railsock stat --path ' 'shm tcp verbs'
expect match 'railsock check --match ' 'client server'
expect order 'railsock ab --order r' random
expect device 'railsock lab run --device ' 'none rxe'
expect nothing_for_a_number 'railsock run --ring ' ''
expect no_more_after_a_value 'railsock stat --port 80 --j' --json
touch "$dir/rules.conf" "$dir/report"
expect check_file "railsock check $dir/ru" "$dir/rules.conf"
expect log_file "railsock run --log info:$dir/re" "$dir/report"
expect report_file "railsock run --report=json:$dir/re" "$dir/report"
expect html_file "railsock ab --html $dir/re" "$dir/report"

# ---- commands
printf '#!/bin/sh\n' >"$dir/completion-one"
chmod +x "$dir/completion-one"
PATH=$PATH:$dir
expect command 'railsock run completion-o' completion-one
expect command_after_dashes 'railsock run --tcp -- completion-o' completion-one
expect command_after_values 'railsock run --wire=shm --log info:/x --report=json:/y --spin 3 completion-o' completion-one
# Every option that has a value is known as such, else the value would be taken for the command.
for sub in run 'lab run'; do
    while read -r option value; do
        [[ $value == [A-Z]* ]] || value=''
        expect "command_after[$sub $option]" "railsock $sub $option ${value:+x }completion-o" completion-one
    done < <("$build/railsock" "${sub%% *}" --help | sed -n 's/^  \(--[a-z]*\)\(\[[^ ]*\)\? /\1 /p')
done
expect command_in_the_lab 'railsock lab run --hosts 2 -- completion-o' completion-one
expect command_of_ab 'railsock ab -n 3 -- completion-o' completion-one
expect no_options_of_ours 'railsock run -- cat --' ''
expect its_files "railsock run cat $dir/ru" "$dir/rules.conf"
expect its_words_are_not_ours "railsock run -- cat --wire " "$(compgen -f | sort | xargs)"
expect program_of_match 'railsock check --match server completion-o' completion-one
expect program_of_doctor 'railsock doctor completion-o' completion-one

# Processes: the file is that of a process which lives.
if [ -w /dev/shm ]; then
    folder=$(mktemp -d /dev/shm/railsock-completion.XXXXXX) && touch "$folder/$$" "$folder/4194999"
    case " $(offers 'railsock stat --pid ') " in
    *' 4194999 '*) echo 'not ok completion.pids: one that is not there' ;;
    *" $$ "*) echo 'ok completion.pids' ;;
    *) echo 'not ok completion.pids: not ours' ;;
    esac
    case " $(offers 'railsock stat --program ') " in
    *" $(cat /proc/$$/comm) "*) echo 'ok completion.programs' ;;
    *) echo 'not ok completion.programs: not ours' ;;
    esac
    # Another user's process may have any name.
    # shellcheck disable=SC2016 # so it is to stay
    name='$(touch x)'
    ln -sf "$(command -v sleep)" "$dir/$name"
    (cd "$dir" && exec "./$name" infinity) &
    named=$!
    until [ "$(cat "/proc/$named/comm")" = "$name" ]; do :; done
    touch "$folder/$named"
    out=$(cd "$dir" && offers 'railsock stat --program ')
    if [[ $out == *touch* && ! -e $dir/x ]]; then
        echo 'ok completion.names_are_not_run'
    else
        echo "not ok completion.names_are_not_run: $out"
    fi
    kill "$named"
    rm -rf "$folder"
else
    echo 'skip completion.pids: no /dev/shm'
fi

# With the package bash-completion the command's own completion is asked.
if [ -r /usr/share/bash-completion/bash_completion ]; then
    # shellcheck source=/dev/null
    . /usr/share/bash-completion/bash_completion
    # shellcheck disable=SC2317 # called by bash-completion
    _one() { COMPREPLY=("of-one-${COMP_WORDS[COMP_CWORD]}-$COMP_CWORD"); }
    complete -F _one completion-one
    expect their_completion 'railsock run --tcp -- completion-one word' of-one-word-1
    expect their_completion_in_the_lab 'railsock lab run completion-one a word' of-one-word-2
else
    echo 'skip completion.their_completion: the package bash-completion is not installed'
fi
