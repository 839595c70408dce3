"""echo_server.py asyncio|threads HOST PORT: sends back what it gets, until the end of stream."""
import asyncio
import socket
import sys
import threading


async def asyncio_connection(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    finally:
        writer.close()


async def asyncio_main(host, port):
    server = await asyncio.start_server(asyncio_connection, host, port)
    async with server:
        await server.serve_forever()


def thread_connection(s):
    with s:
        while data := s.recv(65536):
            s.sendall(data)
        s.shutdown(socket.SHUT_WR)


def threads_main(host, port):
    with socket.create_server((host, port), backlog=64) as listener:
        while True:
            s, _ = listener.accept()
            threading.Thread(target=thread_connection, args=(s,), daemon=True).start()


kind, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if kind == "asyncio":
    asyncio.run(asyncio_main(host, port))
else:
    threads_main(host, port)
