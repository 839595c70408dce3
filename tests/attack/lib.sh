# tests/attack/lib.sh - what the two scripts of attacks share; sourced by them. PREFIX names the
# cases, `attack` is the program.
# shellcheck shell=bash
# shellcheck source=tests/wait.sh
. tests/wait.sh

# verdict NAME GOT WANTED [DETAILS]: WANTED is an extended regular expression.
verdict() {
    if [[ $2 =~ ^($3)$ ]]; then
        echo "ok $PREFIX.$1"
    else
        echo "not ok $PREFIX.$1: $2, and not $3"
        [ -z "${4-}" ] || tail -n 5 "$4" | sed 's/^/    /'
    fi
}

# Asks until the victim can be asked: it becomes reachable when its connection has been worth it.
asks() { # TUPLE... [KNOWN]
    wait_until 15 answered "$@"
    echo "$answer"
}

answered() { # TUPLE... [KNOWN]
    answer=$(timeout 20 "$attack" ask "$@")
    [[ $answer != *no-peer-library* ]]
}

listens() { # PORT [COUNT]
    wait_until 15 listening "$@"
}

says() { # FILE TEXT: until it is there
    wait_until 15 grep -qs "$2" "$1"
}
