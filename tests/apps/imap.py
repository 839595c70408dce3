"""imap.py ADDRESS PORT - mails are put on a server and fetched again, byte for byte, over several connections."""
import imaplib
import sys


def mail(i):
    lines = "".join("line %d of mail %d\r\n" % (n, i) for n in range(i * i * 40))
    return ("From: a@test\r\nSubject: %d\r\n\r\n" % i + lines).encode()


N = 20
for again in range(5):
    with imaplib.IMAP4(sys.argv[1], int(sys.argv[2])) as c:
        c.login("user", "any")
        if again == 0:
            for k in range(N):
                c.append("INBOX", None, None, mail(k))
        if c.select("INBOX")[1] != [b"%d" % N]:
            sys.exit("mails are missing")
        for k in range(N):
            got = c.fetch(str(k + 1), "(RFC822)")[1][0][1]
            if got != mail(k):
                sys.exit(f"mail {k} differs")
print("done")
