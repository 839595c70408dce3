/*
 * Closes.java - sockets that one thread closes while another is in read() on them, again and again, each after
 * enough traffic to have boarded. The JDK ends the read with dup2 and one signal.
 */
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.util.concurrent.CountDownLatch;

class Closes {
    static void warm(Socket from, Socket to) throws Exception {
        byte[] some = new byte[1000];
        for (int i = 0; i < 200; i++) {
            from.getOutputStream().write(some);
            to.getInputStream().readNBytes(some.length);
            to.getOutputStream().write(some);
            from.getInputStream().readNBytes(some.length);
        }
    }

    public static void main(String[] args) throws Exception {
        int closed = 0, rounds = Integer.parseInt(args[0]);
        try (ServerSocket listener = new ServerSocket(0, 10, InetAddress.getLoopbackAddress())) {
            for (int i = 0; i < rounds; i++) {
                Socket a = new Socket(listener.getInetAddress(), listener.getLocalPort());
                Socket b = listener.accept();
                CountDownLatch reading = new CountDownLatch(1);
                String[] how = {"nothing"};
                warm(a, b);
                Thread reader = new Thread(() -> {
                    try {
                        reading.countDown();
                        how[0] = "read " + b.getInputStream().read();
                    } catch (SocketException e) {
                        how[0] = "closed";
                    } catch (Exception e) {
                        how[0] = e.toString();
                    }
                });
                reader.start();
                reading.await();
                Thread.sleep(i % 5);
                b.close();
                reader.join(20000);
                if (reader.isAlive())
                    System.exit(2);
                if (how[0].equals("closed"))
                    closed++;
                else
                    System.out.println(how[0]);
                a.close();
            }
        }
        System.out.println(closed + " closed");
    }
}
