/*
 * NioEcho.java server HOST PORT: one thread with a Selector sends back what it gets on all connections.
 * NioEcho.java client HOST PORT: messages of many sizes there and back, from some threads, compared.
 */
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Random;

class NioEcho {
    static void serve(InetSocketAddress address) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(address);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        for (;;) {
            selector.select();
            for (Iterator<SelectionKey> i = selector.selectedKeys().iterator(); i.hasNext();) {
                SelectionKey key = i.next();
                i.remove();
                if (key.isAcceptable()) {
                    SocketChannel s = listener.accept();
                    s.configureBlocking(false);
                    s.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(65536));
                } else {
                    echo(key);
                }
            }
        }
    }

    /* Reads when the buffer is empty, else writes what is in it. */
    static void echo(SelectionKey key) throws IOException {
        SocketChannel s = (SocketChannel)key.channel();
        ByteBuffer buffer = (ByteBuffer)key.attachment();
        if (key.isReadable()) {
            buffer.clear();
            if (s.read(buffer) < 0) {
                s.close();
                return;
            }
            buffer.flip();
        }
        s.write(buffer);
        key.interestOps(buffer.hasRemaining() ? SelectionKey.OP_WRITE : SelectionKey.OP_READ);
    }

    static void ask(InetSocketAddress address, int seed) throws IOException {
        int[] sizes = {1, 17, 1000, 70000};
        Random pick = new Random(seed);
        try (SocketChannel s = SocketChannel.open(address)) {
            for (int i = 0; i < 400; i++) {
                byte[] message = new byte[sizes[i % sizes.length]];
                pick.nextBytes(message);
                ByteBuffer out = ByteBuffer.wrap(message), in = ByteBuffer.allocate(message.length);
                while (out.hasRemaining())
                    s.write(out);
                while (in.hasRemaining())
                    if (s.read(in) < 0)
                        throw new IOException("the stream ends early");
                if (!Arrays.equals(in.array(), message))
                    throw new IOException("wrong bytes in message " + i);
            }
            s.shutdownOutput();
            if (s.read(ByteBuffer.allocate(1)) >= 0)
                throw new IOException("more came than was sent");
        }
    }

    public static void main(String[] args) throws Exception {
        InetSocketAddress address = new InetSocketAddress(args[1], Integer.parseInt(args[2]));
        if (args[0].equals("server"))
            serve(address);
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            int seed = i;
            threads[i] = new Thread(() -> {
                try {
                    ask(address, seed);
                } catch (IOException e) {
                    System.out.println(e.getMessage());
                    System.exit(1);
                }
            });
            threads[i].start();
        }
        for (Thread t : threads)
            t.join();
        System.out.println("all came back");
    }
}
