# echo_fork.pl server HOST PORT: a process for each connection sends back what it gets.
# echo_fork.pl client HOST PORT: messages of many sizes there and back, compared.
use strict;
use warnings;
use IO::Socket::INET;

my ($side, $host, $port) = @ARGV;

sub serve {
    my $listener = IO::Socket::INET->new(LocalAddr => $host, LocalPort => $port, Listen => 16, ReuseAddr => 1)
        or die "listen: $!\n";
    $SIG{CHLD} = 'IGNORE';
    while (1) {
        my $s = $listener->accept or next;
        my $pid = fork;
        die "fork: $!\n" unless defined $pid;
        if ($pid == 0) {
            close $listener;
            while (sysread $s, my $data, 65536) {
                for (my $at = 0; $at < length $data;) {
                    my $n = syswrite $s, $data, length($data) - $at, $at;
                    die "write: $!\n" unless defined $n;
                    $at += $n;
                }
            }
            exit 0;
        }
        close $s;
    }
}

sub ask {
    for my $round (1 .. 4) {
        my $s = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port) or die "connect: $!\n";
        $s->autoflush(1);
        for my $i (1 .. 300) {
            my $message = join '', map { chr int rand 256 } 1 .. (1, 17, 100, 4096)[$i % 4];
            $message x= 16 if $i % 50 == 0;
            print $s $message or die "print: $!\n";
            my $got = '';
            while (length $got < length $message) {
                read($s, $got, length($message) - length $got, length $got) or die "the stream ends early\n";
            }
            die "wrong bytes in message $i of $round\n" if $got ne $message;
        }
        shutdown $s, 1;
        die "more came than was sent\n" if read $s, my $more, 1;
    }
    print "all came back\n";
}

$side eq 'server' ? serve() : ask();
