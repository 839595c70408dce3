#!/usr/bin/python3
"""docs.py - what the man pages, the completion and README.md have to agree with: each --help, config/README.md,
the library's own strings, the tables of reasons, of the rules' words and of the doctor's checks. Prints what
man_test.sh prints; with `options COMMAND`, only the options of that command's help.

    tests/docs.py BUILD
    tests/docs.py BUILD options COMMAND
"""
import os
import re
import subprocess
import sys

PAGES = "tools/man"
LIBRARYS_OWN = re.compile(rb"(?<![A-Z_])RAILSOCK_[A-Z0-9_]+(?![A-Za-z_])")


def show(name, wrong):
    print(f"not ok man.{name}: {'; '.join(wrong)}" if wrong else f"ok man.{name}")


def run(*words):
    # Help by argparse is as wide as the terminal.
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAILSOCK_")}
    return subprocess.run(words, env=env | {"COLUMNS": "100", "LC_ALL": "C"}, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def rendered(page):
    """Wide, so that no paragraph is broken and a line that begins with an option is an item's."""
    return run("groff", "-mdoc", "-Tascii", "-P-cbou", "-rLL=2000n", f"{PAGES}/{page}")


def flat(text):
    return re.sub(r"\s+", " ", text)


def section(text, name):
    found = re.search(rf"^{name}\n(.*?)(?=^\S|\Z)", text, re.M | re.S)
    return found.group(1) if found else ""


def items(text):
    """The items of a page's lists: their tags as they are shown, without what stands behind short ones."""
    return [re.split(r" {2,}", line.strip())[0] for line in text.splitlines() if re.match(r" {5}\S", line)]


def short(option):
    """Newer argparse writes -n, --pairs PAIRS for -n PAIRS, --pairs PAIRS."""
    return re.sub(r"^(-\w) (\S+), (--\S+ \2)$", r"\1, \3", option)


def options(help_text):
    """The options of a help as they are written: --rate [SECONDS]."""
    return [short(re.split(r" {2,}", m.group(1))[0]) for m in re.finditer(r"^ {2}(-.*)$", help_text, re.M)]


def commands(railsock):
    return re.findall(r"^  (\w+)", run(railsock, "--help"), re.M)


def names(written):
    return set(re.findall(r"(?<!\S)--?[a-z-]+", " ".join(written)))


def check_options(railsock):
    for command in commands(railsock):
        page = f"railsock-{command}.1"
        if not os.path.exists(f"{PAGES}/{page}"):
            show(f"page[{command}]", [f"there is no {PAGES}/{page}"])
            continue
        help_text = run(railsock, command, "--help")
        text = rendered(page)
        shown = {short(i) for i in items(section(text, "OPTIONS")) if i.startswith("-")}
        wanted = set(options(help_text))
        # Each has it, and few say so.
        if "--help" not in names(wanted):
            wanted |= {i for i in shown if "--help" in i} or {"--help"}
        show(f"options[{command}]", [f"not in the page: {o}" for o in sorted(wanted - shown)] +
             [f"not in --help: {o}" for o in sorted(shown - wanted)])
        # What an option is set to, as the profiles do: BOARD=eager SPIN=200.
        values = re.findall(r"(?<![\w-])[A-Z]+=[\w=]+", help_text)
        show(f"values[{command}]", [f"not in the page: {v}" for v in values if v not in text])
        first = rendered("railsock.1")
        show(f"listed[{command}]", [] if command in items(first) and f"{page[:-2]}(1)" in section(first, "SEE ALSO")
             else ["not a command of railsock(1), or not under SEE ALSO"])


def table(file):
    """The settings' table: name, in rules, values, default."""
    rows = re.findall(r"^\| `(RAILSOCK_\w+)` \|(.*?)\| (.*?) \| (.*?) \|$", file, re.M)
    return [[c.replace("`", "").strip() for c in row] for row in rows]


def check_settings(build):
    readme = open("config/README.md", encoding="utf-8").read()
    page = section(rendered("railsock.7"), "ENVIRONMENT")
    text, tags = flat(page), " ".join(items(page))
    rows = table(readme)
    show("settings", [f"railsock(7) does not say: {what}" for name, rules, values, default in rows
                      for what in [f"{name} {values}. Default: {default}." + (f" In rules: {rules}." if rules else "")]
                      if what not in text] + ([] if len(rows) > 10 else ["the table was not found"]))
    with open(f"{build}/librailsock.so", "rb") as f:
        read = {n.decode() for n in LIBRARYS_OWN.findall(f.read())}
    known = set(re.findall(r"RAILSOCK_\w+", tags))
    show("variables", [f"not in railsock(7): {n}" for n in sorted(read - known)] +
         [f"the library does not read {n}" for n in sorted(known - read)] + ([] if len(read) > 10 else ["none found"]))
    # What the command and its scripts read beyond that.
    theirs = set()
    for file in os.listdir("tools"):
        if os.path.isfile(f"tools/{file}") and not file.endswith(".md"):
            text = open(f"tools/{file}", encoding="utf-8").read()
            theirs |= set(re.findall(r"(?:getenv\(|environ\.get\(|\$\{)\"?(RAILSOCK_\w+)", text))
    theirs = {n for n in theirs if not n.startswith("RAILSOCK_TEST_")}
    pages = "".join(rendered(p) for p in os.listdir(PAGES))
    show("commands_variables", [f"in no page: {n}" for n in sorted(theirs) if n not in pages] +
         ([] if len(theirs) > 3 else ["none found"]))


def check_reasons():
    rows = re.findall(r'^REASON\(\d+, \w+, "([^"]*)", "([^"]*)"', open("config/reason.def", encoding="utf-8").read(), re.M)
    text = flat(section(rendered("railsock.7"), "REASONS")).lower()
    show("reasons", [f"railsock(7) does not say: {n}: {s}" for n, s in rows
                     if n != "none" and f" {n} {s}.".lower() not in text] + ([] if len(rows) > 40 else ["none found"]))


def check_rules():
    page = rendered("railsock.conf.5")
    readme = open("config/README.md", encoding="utf-8").read()
    grammar = readme[readme.index("    file      ="):readme.index("A word ends at a blank")]
    lines = {line.strip() for line in page.splitlines()}
    show("grammar", [f"railsock.conf(5) has not: {line.strip()}" for line in grammar.splitlines()
                     if line.strip() and line.strip() not in lines])
    lex, values = (open(f"config/{f}", encoding="utf-8").read() for f in ("lex.c", "values.c"))
    words = re.findall(r'^    \{"([a-z-]+)", [A-Z_]+, ', lex, re.M)
    words += [row[1] for row in table(readme) if row[1]]
    tags = {w for i in items(page[page.index("Statements"):]) for w in re.findall(r"[a-z-]+", i)}
    inside = {"at", "destination", "file", "min-level", "stderr", "syslog"}
    show("words", [f"no item of railsock.conf(5): {w}" for w in words if w not in tags | inside] +
         [f"not in railsock.conf(5): {w}" for w in inside if not re.search(rf"\b{w}\b", page)] +
         [f"no setting, says values.c: {row[1]}" for row in table(readme) if row[1] not in ("", "log")
          and f'"{row[1]}"' not in values] + ([] if len(words) > 20 else ["none found"]))


def check_stat():
    page = section(rendered("railsock-stat.1"), "OUTPUT")
    words = set(re.findall(r"\w+", page))
    source = {f: open(f"tools/{f}", encoding="utf-8").read() for f in ("stat_json.c", "stat_prometheus.c")}
    keys = set(re.findall(r'\\"(\w+)\\":', source["stat_json.c"]))
    keys |= set(re.findall(r'put_(?:key_string|number_or_null)\(f, "(\w+)"', source["stat_json.c"]))
    metrics = set(re.findall(r'"(railsock_\w+)"', source["stat_prometheus.c"]))
    readme = open("tools/README.md", encoding="utf-8").read()
    show("stat_output", [f"not in railsock-stat(1): {w}" for w in sorted((keys | metrics) - words)] +
         [f"not in tools/README.md: {w}" for w in sorted(keys | metrics) if w not in readme] +
         ([] if len(keys) > 35 and len(metrics) > 5 else ["none found"]))


def check_lab():
    found = re.search(r"packages_lab='([^']*)'", open("tools/deps", encoding="utf-8").read()).group(1).split()
    text = flat(rendered("railsock-lab.1"))
    show("packages", [f"railsock-lab(1) does not name {p}" for p in found if p not in text])


def check_doctor():
    checks = re.findall(r"^CHECK\(HOST, ", open("tools/doctor.def", encoding="utf-8").read(), re.M)
    said = re.findall(r"^ +not ready: \d+ of (\d+) failed$", open("README.md", encoding="utf-8").read(), re.M)
    show("doctor_checks", [f"README.md says {n}, doctor.def has {len(checks)}" for n in said if int(n) != len(checks)] +
         ([] if said and checks else ["none found"]))


def main():
    build = sys.argv[1]
    railsock = f"{build}/railsock"
    if sys.argv[2:3] == ["options"]:
        written = options(run(railsock, sys.argv[3], "--help"))
        print("\n".join(sorted(names(written) | {"--help"})))
        return
    check_options(railsock)
    check_settings(build)
    check_reasons()
    check_rules()
    check_stat()
    check_lab()
    check_doctor()


if __name__ == "__main__":
    main()
